//! Structured logs: one line per event on stderr, fields apart from the text.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

/// Starts logging to stderr. `DRIGS_LOG` chooses what is said, in `tracing`'s filter syntax (`info`, `drigs=debug`, …).
pub fn init(format: LogFormat) {
    let filter = EnvFilter::try_from_env("DRIGS_LOG")
        .unwrap_or_else(|_| EnvFilter::new("info,openraft=warn,tonic=warn,h2=warn,hyper=warn"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal());
    // A second call, as in tests that start several roles in one process, changes nothing.
    let _ = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
}
