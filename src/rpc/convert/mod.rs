//! Protobuf ⇄ model. Out of the model nothing can fail; into it every field is checked, because bytes may come from
//! anyone and from any version.

mod attempt;
mod cluster;
mod failure;
mod fleet;
mod job_request;
mod job_view;
mod log;
mod orders;
mod session;
mod spec;
mod worker;

pub(crate) use self::failure::{Failure, from_status, to_status, too_large};
pub(crate) use self::log::{decode_batch, encode_commands, join_commands};
pub(crate) use self::orders::{Decoder, Encoder};
pub(crate) use self::session::{upload_in, upload_out};

/// Why a message means nothing to this program.
#[derive(Debug, thiserror::Error)]
pub enum Malformed {
    #[error("field `{0}` is missing")]
    Missing(&'static str),
    #[error("field `{field}` has the value {value}, which this version does not know")]
    UnknownValue { field: &'static str, value: i32 },
    #[error("field `{field}` is {problem}")]
    Invalid { field: &'static str, problem: &'static str },
    #[error("a command of a kind that this version does not know: it was written by a newer DRIGS")]
    UnknownCommand,
    #[error("not a message: {0}")]
    Bytes(#[from] prost::DecodeError),
}

/// Takes a field that must be there, and converts it.
fn required<P, M>(value: Option<P>, field: &'static str) -> Result<M, Malformed>
where
    M: TryFrom<P, Error = Malformed>,
{
    value.ok_or(Malformed::Missing(field))?.try_into()
}

fn optional<P, M>(value: Option<P>) -> Result<Option<M>, Malformed>
where
    M: TryFrom<P, Error = Malformed>,
{
    value.map(M::try_from).transpose()
}

fn all<P, M, C: FromIterator<M>>(values: impl IntoIterator<Item = P>) -> Result<C, Malformed>
where
    M: TryFrom<P, Error = Malformed>,
{
    values.into_iter().map(M::try_from).collect()
}

/// An enum whose variants are called alike on both sides.
macro_rules! same_variants {
    ($name:ident, $field:literal, [$($variant:ident),+ $(,)?]) => {
        impl From<crate::model::$name> for crate::rpc::proto::$name {
            fn from(value: crate::model::$name) -> Self {
                match value { $(crate::model::$name::$variant => Self::$variant),+ }
            }
        }

        impl TryFrom<crate::rpc::proto::$name> for crate::model::$name {
            type Error = crate::rpc::convert::Malformed;

            fn try_from(value: crate::rpc::proto::$name) -> Result<Self, Self::Error> {
                match value {
                    crate::rpc::proto::$name::Unspecified => {
                        Err(crate::rpc::convert::Malformed::Missing($field))
                    }
                    $(crate::rpc::proto::$name::$variant => Ok(Self::$variant)),+
                }
            }
        }

        impl crate::rpc::proto::$name {
            /// Reads the number that travels.
            pub(crate) fn decode(
                value: i32,
            ) -> Result<crate::model::$name, crate::rpc::convert::Malformed> {
                crate::rpc::proto::$name::try_from(value)
                    .map_err(|_| crate::rpc::convert::Malformed::UnknownValue {
                        field: $field,
                        value,
                    })?
                    .try_into()
            }
        }
    };
}
use same_variants;

#[cfg(test)]
mod tests;
