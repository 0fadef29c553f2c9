//! `drigs cluster recover`: a lost majority.

use std::{
    io::{self, BufRead as _, IsTerminal as _},
    path::PathBuf,
};

use clap::Args;

use crate::cli::{
    Session,
    failure::{Failure, code},
    screen::Screen,
};
use crate::rpc::{
    api::Api,
    offline::{RecoveredView, SurvivorView},
};

#[derive(Args, Clone, Debug)]
pub struct RecoverArgs {
    /// The data directory of a controller that is left, and does not run
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// My word that the others never come back with what they know
    #[arg(long, conflicts_with = "confirm")]
    yes: bool,
    /// The same, naming the cluster
    #[arg(long, value_name = "CLUSTER ID")]
    confirm: Option<String>,
}

pub fn run(args: RecoverArgs, session: &mut Session<'_, impl Api>) -> Result<(), Failure> {
    let survivor = session.offline.survey(&args.data_dir)?;
    session.screen.note(survey_text(&survivor, &session.screen));
    let confirmed = match (args.yes, args.confirm) {
        (true, _) => survivor.cluster_id.clone(),
        (false, Some(typed)) => typed,
        (false, None) => ask(&survivor, session)?,
    };
    if confirmed.trim() != survivor.cluster_id {
        return Err(Failure::new(
            code::USAGE,
            format!(
                "nothing was done: `{}` is not the id of this cluster, {}",
                confirmed.trim(),
                survivor.cluster_id
            ),
        ));
    }
    let recovered = session.offline.recover(&args.data_dir, &survivor.cluster_id)?;
    let data_dir = args.data_dir.display().to_string();
    session.screen.show(&recovered, |_| recovered_text(&recovered, &data_dir))
}

fn ask(survivor: &SurvivorView, session: &mut Session<'_, impl Api>) -> Result<String, Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::usage(format!(
            "nothing was done: say --yes, or --confirm {}",
            survivor.cluster_id
        )));
    }
    session.screen.note("Type the id of the cluster to go on:");
    let mut typed = String::new();
    io::stdin().lock().read_line(&mut typed)?;
    Ok(typed)
}

fn survey_text(survivor: &SurvivorView, screen: &Screen<'_>) -> String {
    let SurvivorView { cluster_id, controller, address, last_index, last_term, .. } = survivor;
    let others: Vec<String> =
        survivor.others.iter().map(|other| format!("{} at {}", other.id, other.address)).collect();
    let others = if others.is_empty() { String::from("none") } else { others.join(", ") };
    let written = survivor
        .last_written_at
        .map_or_else(|| String::from("at an unknown time"), |at| screen.moment_and_age(at));
    let unsure =
        survivor.known_committed.map_or(*last_index, |known| last_index.saturating_sub(known));
    let again = match survivor.begun {
        true => "An earlier recovery of it did not come to its end, and is gone on with.\n",
        false => "",
    };
    format!(
        "{again}Controller {controller} ({address}) of cluster {cluster_id} is to become its only one. Left behind: {others}.\n\
         Its log ends with entry {last_index} of term {last_term}, written {written}.\n\n\
         It can not know:\n\
         - What the others acknowledged after that entry. It is lost: jobs, cancellations, ends of tasks.\n\
         - Whether its last {unsure} entries were ever acknowledged. They are kept, as if they had been.\n\
         - Whether the others really are gone. While they live and reach each other, they go on without this one;\n  \
           recover only when they never come back with what they know."
    )
}

fn recovered_text(recovered: &RecoveredView, data_dir: &str) -> String {
    let RecoveredView { cluster_id, generation, survivor } = recovered;
    let SurvivorView { controller, address, .. } = survivor;
    format!(
        "Controller {controller} is the only one of cluster {cluster_id}, generation {generation}.\n\
         The others are refused from now on, and end as soon as they hear of it.\n\
         What runs on workers goes on. What a worker had is not given up by time until it has connected, and jobs of before\n\
         start only once every worker of before has connected, or `drigs worker forget NAME` says that it is gone.\n\n\
         Next:\n  \
           drigs-controller --id {controller} --peers {controller}={address} --data-dir {data_dir} …\n  \
           drigs cluster add NUMBER HOST:7070      for each further one: an empty directory, a number never used\n"
    )
}
