//! `drigs cluster status|add|remove|transfer-leader`.

use clap::{Args, Subcommand};

use crate::cli::{
    Session,
    failure::Failure,
    screen::{Cell, Screen, Table},
    watch::Watch,
};
use crate::rpc::api::{Api, ClusterView, MemberAction};

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
    /// Add a controller that was started with an empty data directory
    Add {
        /// A number that no controller of this cluster ever had
        id: u64,
        /// Where it listens: host:7070
        address: String,
    },
    /// Remove a controller, dead or alive; it never votes again
    Remove { id: u64 },
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
        Verb::Add { id, address } => {
            let done = format!("added controller {id} at {address}");
            (MemberAction::Add { id, address }, done)
        }
        Verb::Remove { id } => (MemberAction::Remove { id }, format!("removed controller {id}")),
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
            Cell::health(&member.role, "LEADER"),
            reachable,
            number(member.applied).into(),
            number(member.lag).into(),
            hash.into(),
            member.version.as_deref().unwrap_or_default().into(),
        ]);
    }
    format!("{head}\n\n{}", table.draw(screen))
}
