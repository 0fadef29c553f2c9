//! Who may call at all: a bearer token in the `authorization` header of every call.

use std::fmt;

/// What a server asks of its callers.
#[derive(Clone, Default)]
pub struct Auth {
    /// `None` lets everybody in.
    pub token: Option<String>,
}

/// Secrets stay out of logs.
impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = self.token.as_ref().map(|_| "…");
        f.debug_struct("Auth").field("token", &token).finish()
    }
}

impl tonic::service::Interceptor for Auth {
    fn call(&mut self, _: tonic::Request<()>) -> Result<tonic::Request<()>, tonic::Status> {
        todo!()
    }
}
