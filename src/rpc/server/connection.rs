//! Connections that can be cut. A server that ends must not leave any behind: a peer that keeps a stream open would hold
//! it for ever, and would not notice that nobody is there any more.

use std::{
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use futures::Stream;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::{Connected, TcpConnectInfo};
use tracing::warn;

/// Accepting fails when the process is out of file descriptors; it may have some again in a moment.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(50);

/// Connections until `shutdown`; then the port is closed, and `closed` says so.
pub(super) fn accept(
    listener: TcpListener,
    shutdown: impl Future<Output = ()> + Send + 'static,
    closed: CancellationToken,
    cut: CancellationToken,
) -> impl Stream<Item = io::Result<Connection>> {
    let open = (listener, Box::pin(shutdown));
    futures::stream::unfold(Some(open), move |open| {
        let (closed, cut) = (closed.clone(), cut.clone());
        async move {
            let (listener, mut shutdown) = open?;
            let accepted = tokio::select! {
                () = &mut shutdown => None,
                stream = next(&listener) => Some(stream),
            };
            let Some(stream) = accepted else {
                drop(listener);
                closed.cancel();
                return None;
            };
            Some((Ok(Connection::new(stream, cut)), Some((listener, shutdown))))
        }
    })
}

async fn next(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(PAUSE_AFTER_ERROR).await;
            }
        }
    }
}

pub(super) struct Connection {
    stream: TcpStream,
    cut: CancellationToken,
    until_cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Connection {
    fn new(stream: TcpStream, cut: CancellationToken) -> Self {
        if let Err(error) = stream.set_nodelay(true) {
            warn!(%error, "answers on this connection may be late");
        }
        Connection { stream, until_cut: Box::pin(cut.clone().cancelled_owned()), cut }
    }

    fn if_whole(&self) -> io::Result<()> {
        if self.cut.is_cancelled() { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.until_cut.as_mut().poll(cx).is_ready() {
            return Poll::Ready(self.if_whole());
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.if_whole()?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.if_whole()?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.if_whole()?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}
