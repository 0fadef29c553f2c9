//! Who may call at all: a bearer token in the `authorization` header of every call.

use std::fmt;

use tonic::{Request, Status, service::Interceptor};

/// What a server asks of its callers.
#[derive(Clone, Default)]
pub struct Auth {
    /// `None` lets everybody in.
    pub token: Option<String>,
}

impl Interceptor for Auth {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        let Some(token) = &self.token else { return Ok(request) };
        let header = request.metadata().get("authorization");
        let given = header.and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        match given {
            Some(given) if same(given, token) => Ok(request),
            Some(_) => {
                Err(Status::unauthenticated("the token is not this cluster's: check DRIGS_TOKEN"))
            }
            None => Err(Status::unauthenticated("this cluster asks for a token: set DRIGS_TOKEN")),
        }
    }
}

/// Hashes compare in constant time, so that a guess learns nothing from how long its refusal took.
fn same(given: &str, token: &str) -> bool {
    blake3::hash(given.as_bytes()) == blake3::hash(token.as_bytes())
}

/// Secrets stay out of logs.
impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = self.token.as_ref().map(|_| "…");
        f.debug_struct("Auth").field("token", &token).finish()
    }
}
