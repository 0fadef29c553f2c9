//! `drigs cluster`: the controllers themselves.

mod backup;
mod members;
mod recover;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use self::{
    backup::{BackupArgs, RestoreArgs},
    members::{CatchUp, Newcomer, percent},
    recover::RecoverArgs,
};
use crate::cli::{
    Session,
    failure::Failure,
    screen::{Cell, Screen, Table},
    watch::Watch,
};
use crate::rpc::api::{Api, ClusterView, MemberAction, MemberView};

const ADD_EXAMPLES: &str = "\
Examples:
  drigs-controller --id 4 --peers 4=ctl4:7070 …   on the new machine, with an empty data directory
  drigs cluster add 4 ctl4:7070                   from anywhere
  drigs cluster add 4 ctl4:7070 --wait 1h         a large state, a slow network";

const BACKUP_EXAMPLES: &str = "\
Examples:
  drigs cluster backup /backups/drigs-$(date +%F).drigs
  drigs -H ctl3:7070 cluster backup - | ssh vault 'cat > drigs.drigs'
  drigs cluster backup --data-dir /var/lib/drigs/controller drigs.drigs   of a controller that does not run";

const RESTORE_EXAMPLES: &str = "\
Examples:
  drigs cluster restore drigs.drigs --data-dir /var/lib/drigs/controller --id 1 --peers 1=ctl1:7070";

const RECOVER_EXAMPLES: &str = "\
Examples:
  systemctl stop drigs-controller
  drigs cluster recover --data-dir /var/lib/drigs/controller   says what is lost, and asks";

const REPLACE_EXAMPLES: &str = "\
Examples:
  drigs cluster replace 2 4=ctl4:7070   controller 2 (dead or alive) goes once controller 4 votes";

#[derive(Args, Clone, Debug)]
pub struct ClusterArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Clone, Debug, Subcommand)]
enum Verb {
    /// List the controllers, who leads, and how far each has come
    Status {
        #[command(flatten)]
        watch: Watch,
    },
    /// Add a controller that was started with an empty data directory; returns once it votes
    #[command(after_help = ADD_EXAMPLES)]
    Add {
        /// A number that no controller of this cluster ever had
        id: u64,
        /// Where it listens: host:7070
        address: String,
        #[command(flatten)]
        wait: CatchUp,
    },
    /// Remove a controller, dead or alive; it never votes again, and its number is not used again
    Remove { id: u64 },
    /// Put a new controller in the place of an old one: add, wait, remove
    #[command(after_help = REPLACE_EXAMPLES)]
    Replace {
        /// The one that goes, dead or alive
        old: u64,
        /// The one that comes, started with an empty data directory
        #[arg(value_name = "NEW=ADDRESS")]
        newcomer: Newcomer,
        #[command(flatten)]
        wait: CatchUp,
    },
    /// Say where a controller listens that was started at another address with its data
    Move {
        id: u64,
        /// host:7070
        address: String,
    },
    /// Back up all that the cluster knows, from any controller, without stopping it
    #[command(after_help = BACKUP_EXAMPLES)]
    Backup(BackupArgs),
    /// Check a backup, and say what it holds
    #[command(visible_alias = "verify")]
    InspectBackup { file: PathBuf },
    /// Make a new cluster from a backup: its first controller's data directory
    #[command(after_help = RESTORE_EXAMPLES)]
    Restore(RestoreArgs),
    /// After the loss of most controllers: go on with one that is left, and what it knows
    #[command(after_help = RECOVER_EXAMPLES)]
    Recover(RecoverArgs),
    /// Let another controller lead, without an election
    TransferLeader {
        /// Which one [default: the most caught-up]
        #[arg(value_name = "ID")]
        to: Option<u64>,
    },
}

pub async fn run(args: ClusterArgs, session: &mut Session<'_, impl Api>) -> Result<(), Failure> {
    let (action, done) = match args.verb {
        Verb::Status { watch } => return status(watch, session).await,
        Verb::Add { id, address, wait } => {
            return members::add(Newcomer { id, address }, wait, session).await;
        }
        Verb::Remove { id } => return members::remove(id, session).await,
        Verb::Replace { old, newcomer, wait } => {
            return members::replace(old, newcomer, wait, session).await;
        }
        Verb::Backup(args) => return backup::backup(args, session).await,
        Verb::InspectBackup { file } => return backup::inspect(&file, session),
        Verb::Restore(args) => return backup::restore(args, session),
        Verb::Recover(args) => return recover::run(args, session),
        Verb::Move { id, address } => {
            let done = format!("controller {id} is at {address} from now on");
            (MemberAction::Move { id, address }, done)
        }
        Verb::TransferLeader { to } => {
            let done = to.map_or_else(
                || String::from("leadership was handed over"),
                |to| format!("controller {to} leads"),
            );
            (MemberAction::TransferLeader { to }, done)
        }
    };
    session.api.act_on_members(action).await?;
    session.screen.note(done);
    Ok(())
}

async fn status(watch: Watch, session: &mut Session<'_, impl Api>) -> Result<(), Failure> {
    watch
        .run(session, async |session: &mut Session<'_, _>| {
            let cluster = session.api.cluster().await?;
            session.screen.show(&cluster, |screen| text(&cluster, screen))
        })
        .await
}

fn text(cluster: &ClusterView, screen: &Screen<'_>) -> String {
    let leader = match cluster.leader {
        Some(leader) => format!("controller {leader} leads in term {}", cluster.term),
        None => format!("no leader in term {}", cluster.term),
    };
    let head = format!(
        "Cluster {}: {leader} (says controller {})",
        cluster.cluster_id, cluster.answered_by
    );
    let mut table = Table::new([
        ">ID",
        "~ADDRESS",
        "ROLE",
        "REACHABLE",
        ">APPLIED",
        ">LAG",
        "STATE HASH",
        "~VERSION",
    ]);
    for member in &cluster.members {
        let reachable = match member.reachable {
            Some(true) => Cell::health("yes", "yes"),
            Some(false) => Cell::health("no", "yes"),
            None => Cell::from(""),
        };
        let number = |number: Option<u64>| number.map(|it| it.to_string()).unwrap_or_default();
        let hash: String =
            member.state_hash.iter().flat_map(|hash| hash.chars().take(10)).collect();
        table.row([
            member.id.into(),
            (&member.address).into(),
            Cell::health(&role(member, cluster.last_log), "LEADER"),
            reachable,
            number(member.applied).into(),
            number(member.lag).into(),
            hash.into(),
            member.version.as_deref().unwrap_or_default().into(),
        ]);
    }
    format!("{head}\n\n{}", table.draw(screen))
}

/// Of a learner also how much it has.
fn role(member: &MemberView, last: Option<u64>) -> String {
    match (member.role.as_str(), member.matched.zip(last)) {
        ("LEARNER", Some((matched, last))) => format!("LEARNER {}%", percent(matched, last)),
        (role, _) => role.to_owned(),
    }
}
