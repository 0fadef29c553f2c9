//! Why a request was not carried out, as a gRPC status and as a message.

use std::{fmt, io};

use tonic::{Code, Status, metadata::MetadataValue};

use crate::rpc::{
    api::{ApiError, ErrorKind},
    convert::Malformed,
    proto,
};

/// Tells what a controller answered from what a broken connection looks like: gRPC libraries use the same codes for both.
const MARK: &str = "drigs-error";
/// A status travels in headers, whose size is limited.
const LONGEST_MESSAGE: usize = 2048;

/// What came back instead of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// A controller's own word.
    Answered(ApiError),
    /// The way there failed: whether the call was carried out is not known.
    Broken(String),
}

pub(crate) fn to_status(error: &ApiError) -> Status {
    let mut status = Status::new(code(error.kind), cut(&error.message));
    let kind = proto::ErrorKind::from(error.kind).as_str_name();
    status.metadata_mut().insert(MARK, MetadataValue::from_static(kind));
    status
}

pub(crate) fn from_status(status: &Status) -> Failure {
    let error = |kind, message: &str| Failure::Answered(ApiError::new(kind, message));
    if let Some(kind) = marked_kind(status) {
        return error(kind, status.message());
    }
    match status.code() {
        // tonic's own word, of either end, on a message over the limit.
        Code::OutOfRange => error(ErrorKind::Invalid, &reworded(status.message())),
        Code::Unimplemented => error(
            ErrorKind::Invalid,
            "the controller does not know this call: it is older than this program, or no DRIGS controller",
        ),
        Code::Unauthenticated | Code::PermissionDenied => {
            error(ErrorKind::Denied, status.message())
        }
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::InvalidArgument
        | Code::DeadlineExceeded
        | Code::NotFound
        | Code::AlreadyExists
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss => Failure::Broken(root_cause(status)),
    }
}

fn code(kind: ErrorKind) -> Code {
    match kind {
        ErrorKind::Invalid => Code::InvalidArgument,
        ErrorKind::NotFound => Code::NotFound,
        ErrorKind::Conflict => Code::FailedPrecondition,
        ErrorKind::Denied => Code::PermissionDenied,
        ErrorKind::Unavailable => Code::Unavailable,
        ErrorKind::Overloaded => Code::ResourceExhausted,
        ErrorKind::Internal => Code::Internal,
    }
}

fn marked_kind(status: &Status) -> Option<ErrorKind> {
    let name = status.metadata().get(MARK)?.to_str().ok()?;
    proto::ErrorKind::from_str_name(name)?.try_into().ok()
}

fn cut(message: &str) -> String {
    if message.len() <= LONGEST_MESSAGE {
        return message.to_owned();
    }
    let end = (0..=LONGEST_MESSAGE).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
    format!("{}…", &message[..end])
}

pub(crate) fn too_large(length: impl fmt::Display, limit: impl fmt::Display) -> String {
    format!("the message has {length} bytes; at most {limit} may travel")
}

/// Out of `Error, decoded message length too large: found 17 bytes, the limit is: 16 bytes`.
fn reworded(message: &str) -> String {
    let numbers: Vec<&str> =
        message.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty()).collect();
    match numbers[..] {
        [length, limit] => too_large(length, limit),
        _ => message.to_owned(),
    }
}

/// The innermost error says what happened: "connection refused" rather than "transport error".
fn root_cause(status: &Status) -> String {
    let mut cause: &dyn std::error::Error = status;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    if let Some(error) = cause.downcast_ref::<io::Error>()
        && error.raw_os_error().is_some()
    {
        return error.kind().to_string();
    }
    match cause.downcast_ref::<Status>() {
        Some(status) => status.message().to_owned(),
        None => cause.to_string(),
    }
}

/// What a caller sent makes no sense.
impl From<Malformed> for ApiError {
    fn from(malformed: Malformed) -> Self {
        ApiError::new(ErrorKind::Invalid, malformed.to_string())
    }
}

impl From<ErrorKind> for proto::ErrorKind {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Invalid => Self::Invalid,
            ErrorKind::NotFound => Self::NotFound,
            ErrorKind::Conflict => Self::Conflict,
            ErrorKind::Denied => Self::Denied,
            ErrorKind::Unavailable => Self::Unavailable,
            ErrorKind::Overloaded => Self::Overloaded,
            ErrorKind::Internal => Self::Internal,
        }
    }
}

impl TryFrom<proto::ErrorKind> for ErrorKind {
    type Error = Malformed;

    fn try_from(kind: proto::ErrorKind) -> Result<Self, Malformed> {
        match kind {
            proto::ErrorKind::Unspecified => Err(Malformed::Missing("failure.kind")),
            proto::ErrorKind::Invalid => Ok(Self::Invalid),
            proto::ErrorKind::NotFound => Ok(Self::NotFound),
            proto::ErrorKind::Conflict => Ok(Self::Conflict),
            proto::ErrorKind::Denied => Ok(Self::Denied),
            proto::ErrorKind::Unavailable => Ok(Self::Unavailable),
            proto::ErrorKind::Overloaded => Ok(Self::Overloaded),
            proto::ErrorKind::Internal => Ok(Self::Internal),
        }
    }
}

impl From<ApiError> for proto::Failure {
    fn from(ApiError { kind, message }: ApiError) -> Self {
        proto::Failure { kind: proto::ErrorKind::from(kind).into(), message }
    }
}

impl TryFrom<proto::Failure> for ApiError {
    type Error = Malformed;

    fn try_from(proto::Failure { kind, message }: proto::Failure) -> Result<Self, Malformed> {
        let known = proto::ErrorKind::try_from(kind)
            .map_err(|_| Malformed::UnknownValue { field: "failure.kind", value: kind })?;
        Ok(ApiError::new(known.try_into()?, message))
    }
}
