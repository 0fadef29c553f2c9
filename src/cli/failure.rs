//! Why a command did not do what it was asked, and the exit code that says so.

use std::io;

use crate::cli::spec::Fault;
use crate::rpc::api::{ApiError, ErrorKind};

/// One line for a person, and a code for a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub code: u8,
    /// Empty when everything was said already.
    pub message: String,
}

/// The codes that scripts may rely on.
pub mod code {
    pub const FAILED: u8 = 1;
    pub const USAGE: u8 = 2;
    pub const NOT_FOUND: u8 = 3;
    pub const UNREACHABLE: u8 = 4;
    pub const DENIED: u8 = 5;
    /// 128 + SIGINT, as in a shell.
    pub const INTERRUPTED: u8 = 130;
}

impl Failure {
    pub fn new(code: u8, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into() }
    }

    pub fn usage(message: impl Into<String>) -> Failure {
        Failure::new(code::USAGE, message)
    }

    /// Ends with `code` and says nothing more.
    pub fn quiet(code: u8) -> Failure {
        Failure::new(code, "")
    }

    pub fn is_unreachable(&self) -> bool {
        self.code == code::UNREACHABLE
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Failure {
        let code = match error.kind {
            ErrorKind::Invalid => code::USAGE,
            ErrorKind::NotFound => code::NOT_FOUND,
            ErrorKind::Denied => code::DENIED,
            ErrorKind::Unavailable => code::UNREACHABLE,
            ErrorKind::Conflict | ErrorKind::Overloaded | ErrorKind::Internal => code::FAILED,
        };
        Failure::new(code, error.message)
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Failure {
        Failure::usage(fault.to_string())
    }
}

/// A reader that went away (`| head`) has had enough: that is no failure.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::quiet(0),
            _ => Failure::new(code::FAILED, format!("cannot write: {error}")),
        }
    }
}
