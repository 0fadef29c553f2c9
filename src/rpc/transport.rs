//! What both ends of every connection agree on.

use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use tonic::{
    metadata::{Ascii, MetadataValue},
    transport::Endpoint,
};

use crate::rpc::api::{ApiError, ErrorKind};

/// No message is larger. What a spec may weigh is decided elsewhere, far below this.
pub(super) const MESSAGE_LIMIT: usize = 16 << 20;
/// A peer that is silent for both together is gone. Without this, a connection whose other end lost its power would look
/// alive for a quarter of an hour.
pub(super) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
pub(super) const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(3);
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Set on a call that one controller passes on to another: the other must answer it itself.
pub(super) const PASSED_ON: &str = "drigs-passed-on";

/// How to reach `address`, a `host:port`.
///
/// # Errors
/// It is not one.
pub(super) fn endpoint(address: &str) -> Result<Endpoint, ApiError> {
    check_address(address)?;
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .map_err(|error| ApiError::new(ErrorKind::Invalid, format!("`{address}`: {error}")))?;
    Ok(endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true))
}

/// # Errors
/// `address` is not `host:port`.
pub(super) fn check_address(address: &str) -> Result<(), ApiError> {
    let port = |(host, port): (&str, &str)| port.parse::<u16>().ok().filter(|_| !host.is_empty());
    match address.rsplit_once(':').and_then(port) {
        Some(1..) if !address.contains(['/', ' ', '@']) => Ok(()),
        Some(_) | None => Err(ApiError::new(
            ErrorKind::Invalid,
            format!("`{address}` is not a controller's address (such as 10.0.0.5:7070)"),
        )),
    }
}

/// The header that carries a token.
///
/// # Errors
/// The token has characters that no header may have.
pub(super) fn bearer(token: &str) -> Result<MetadataValue<Ascii>, ApiError> {
    let mut value = MetadataValue::try_from(format!("Bearer {token}")).map_err(|_| {
        let message = "the token has characters that no token has (a line break, or not ASCII)";
        ApiError::new(ErrorKind::Invalid, message)
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// Ends with the first error: what comes after it on the same stream cannot be trusted.
pub(super) fn until_error<T: Send + 'static>(
    stream: impl Stream<Item = Result<T, ApiError>> + Send + 'static,
) -> impl Stream<Item = Result<T, ApiError>> + Send + 'static {
    stream::unfold(Some(Box::pin(stream)), |stream| async {
        let mut stream = stream?;
        let item = stream.next().await?;
        let rest = item.is_ok().then_some(stream);
        Some((item, rest))
    })
    .fuse()
}
