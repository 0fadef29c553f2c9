//! What goes to stdout and stderr, and how it looks.

mod moment;
mod table;

use std::{fmt, io::Write};

use serde::Serialize;

use crate::cli::failure::Failure;
use crate::model::{Millis, Timestamp};
use crate::rpc::json;

pub use self::table::{Cell, Table};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    #[default]
    Table,
    /// A table with more columns
    Wide,
    Json,
    Yaml,
}

/// The two streams of a command. stdout carries data, stderr everything else.
pub struct Screen<'a> {
    pub out: &'a mut dyn Write,
    pub err: &'a mut dyn Write,
    pub format: Format,
    pub header: bool,
    /// Columns of the terminal; `None` when stdout is none, and lines may be of any length.
    pub width: Option<u16>,
    pub colours: bool,
    pub time_zone: jiff::tz::TimeZone,
    pub clock: &'a dyn Fn() -> Timestamp,
    /// The next answer replaces the one on the screen.
    pub clear: bool,
}

impl Screen<'_> {
    /// Shows `view` in the format that was asked for; `table` draws it for people.
    ///
    /// # Errors
    /// stdout cannot be written.
    pub fn show(
        &mut self,
        view: &impl Serialize,
        table: impl FnOnce(&Screen<'_>) -> String,
    ) -> Result<(), Failure> {
        let text = match self.format {
            Format::Table | Format::Wide => table(self),
            Format::Json => {
                let value = json::shown(view);
                serde_json::to_string_pretty(&value).expect("a JSON value has a text") + "\n"
            }
            Format::Yaml => serde_saphyr::to_string(&json::shown(view))
                .map_err(|error| Failure::new(1, format!("cannot write YAML: {error}")))?,
        };
        self.print(&text)
    }

    /// # Errors
    /// stdout cannot be written.
    pub fn print(&mut self, text: &str) -> Result<(), Failure> {
        if std::mem::take(&mut self.clear) {
            self.out.write_all(b"\x1b[H\x1b[2J")?;
        }
        self.write(text.as_bytes())
    }

    /// # Errors
    /// stdout cannot be written.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.out.write_all(bytes)?;
        self.out.flush()?;
        Ok(())
    }

    /// Something to know that is not data. A stderr that cannot be written has nobody to tell.
    pub fn note(&mut self, text: impl fmt::Display) {
        let _ = writeln!(self.err, "{text}");
    }

    pub fn is_wide(&self) -> bool {
        self.format == Format::Wide
    }

    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Local and short.
    pub fn moment(&self, at: Timestamp) -> String {
        moment::short(at, self.now(), &self.time_zone)
    }

    /// As [`Screen::moment`], with how long ago that is.
    pub fn moment_and_age(&self, at: Timestamp) -> String {
        let now = self.now();
        match at > now {
            true => format!("{} (in {})", self.moment(at), at.since(now)),
            false => format!("{} ({} ago)", self.moment(at), now.since(at)),
        }
    }

    /// How long something took, or has taken so far.
    pub fn elapsed(&self, from: Timestamp, to: Option<Timestamp>) -> Millis {
        let length = to.unwrap_or_else(|| self.now()).since(from);
        // Fractions of a second only where they are all there is.
        if length.0 > 10_000 { Millis(length.0 / 1000 * 1000) } else { length }
    }
}

impl fmt::Debug for Screen<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Screen").field("format", &self.format).finish_non_exhaustive()
    }
}
