//! `drigs explain ID`.

use std::fmt::Write as _;

use clap::Args;

use crate::cli::{Session, failure::Failure, screen::Screen, target, watch::Watch};
use crate::model::Explanation;
use crate::rpc::api::{Api, TargetRef};

#[derive(Args, Clone, Debug)]
pub struct ExplainArgs {
    /// A job, or one of its tasks: 12, 12.3
    #[arg(value_name = "ID", value_parser = target::parse)]
    target: TargetRef,
    #[command(flatten)]
    watch: Watch,
}

pub async fn run(args: ExplainArgs, session: &mut Session<'_, impl Api>) -> Result<(), Failure> {
    args.watch
        .run(session, async |session: &mut Session<'_, _>| {
            let explanation = session.api.explain(args.target, session.consistency).await?;
            session.screen.show(&explanation, |screen| text(&explanation, screen))
        })
        .await
}

fn text(explanation: &Explanation, screen: &Screen<'_>) -> String {
    let what = if explanation.target.contains('.') { "task" } else { "job" };
    let mut text = format!("{what} {} is {}", explanation.target, explanation.state);
    // `RECOVERING` is a state and a reason in one; the lines below say which worker is out of touch.
    if let Some(reason) = explanation.reason.filter(|it| it.as_str() != explanation.state.as_str())
    {
        let _ = write!(text, " ({reason})");
    }
    if let Some(ended) = explanation.ended {
        let _ = write!(text, " ({ended})");
    }
    text.push('\n');
    for line in &explanation.lines {
        let _ = writeln!(text, "  {line}");
    }
    match explanation.ahead {
        Some(0) => text.push_str("  No job is served before it.\n"),
        Some(1) => text.push_str("  One job is served before it.\n"),
        Some(ahead) => drop(writeln!(text, "  {ahead} jobs are served before it.")),
        None => {}
    }
    if let Some(start) = explanation.earliest_start {
        let _ =
            writeln!(text, "  By known time limits it starts at {}.", screen.moment_and_age(start));
    }
    text
}
