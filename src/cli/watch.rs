//! `--watch`: the same answer again and again.

use std::time::Duration;

use crate::cli::{
    Session,
    failure::{Failure, code},
};

#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Watch {
    /// Show it again every SECONDS
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2", value_parser = interval)]
    watch: Option<f64>,
}

fn interval(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err(format!("`{text}` is not a number of seconds (0.1 or more)")),
    }
}

impl Watch {
    /// Runs `show` once, or until Ctrl-C. While watching, a cluster out of reach is said and tried again.
    ///
    /// # Errors
    /// Those of `show`.
    pub async fn run<A>(
        self,
        session: &mut Session<'_, A>,
        mut show: impl AsyncFnMut(&mut Session<'_, A>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Some(seconds) = self.watch else { return show(session).await };
        let again = async {
            loop {
                session.screen.clear = session.screen.width.is_some();
                match show(session).await {
                    Err(failure) if failure.is_unreachable() => {
                        session.screen.note(failure.message);
                    }
                    answer => answer?,
                }
                tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
            }
        };
        tokio::select! {
            ended = again => ended,
            Ok(()) = tokio::signal::ctrl_c() => Err(Failure::quiet(code::INTERRUPTED)),
        }
    }
}
