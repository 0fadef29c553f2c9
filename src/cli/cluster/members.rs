//! Changing who takes part, one step at a time. Every step can be asked for again: what is done already stays done.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::cli::{
    Session,
    failure::{Failure, code},
    spec,
};
use crate::model::Millis;
use crate::rpc::api::{Api, MemberAction, MemberView};

#[derive(clap::Args, Clone, Copy, Debug)]
pub struct CatchUp {
    /// How long the new controller may take to catch up before it votes
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = spec::seconds)]
    wait: Millis,
}

/// `4=ctl4:7070`
#[derive(Clone, Debug)]
pub struct Newcomer {
    pub id: u64,
    pub address: String,
}

/// A learner that lacks no more than this is sent the rest in a moment.
const CLOSE_ENOUGH: u64 = 128;
const LOOK_EVERY: Duration = Duration::from_millis(200);
const SAY_EVERY: Duration = Duration::from_secs(2);

impl std::str::FromStr for Newcomer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('=').and_then(|(id, address)| {
            let is_address = address.contains(':') && !address.starts_with(':');
            Some((id.parse().ok().filter(|id| *id > 0)?, is_address.then_some(address)?))
        });
        let (id, address) = parts
            .ok_or_else(|| format!("`{text}` is not NUMBER=HOST:PORT, such as 4=ctl4:7070"))?;
        Ok(Newcomer { id, address: address.to_owned() })
    }
}

pub async fn add(
    newcomer: Newcomer,
    wait: CatchUp,
    session: &mut Session<'_, impl Api>,
) -> Result<(), Failure> {
    let Newcomer { id, address } = newcomer;
    session.api.act_on_members(MemberAction::Add { id, address: address.clone() }).await?;
    catch_up(id, &address, wait, session).await?;
    session.api.act_on_members(MemberAction::Promote { id }).await?;
    session.screen.note(format!("added controller {id} at {address}: it votes"));
    Ok(())
}

pub async fn remove(id: u64, session: &mut Session<'_, impl Api>) -> Result<(), Failure> {
    session.api.act_on_members(MemberAction::Remove { id }).await?;
    session.screen.note(format!("removed controller {id}"));
    Ok(())
}

/// The new one votes before the old one goes, so that at no time fewer can be lost than before.
pub async fn replace(
    old: u64,
    newcomer: Newcomer,
    wait: CatchUp,
    session: &mut Session<'_, impl Api>,
) -> Result<(), Failure> {
    let members = session.api.cluster().await?.members;
    let knows = |id: u64| members.iter().any(|member| member.id == id);
    if old == newcomer.id {
        return Err(Failure::usage(format!(
            "the new controller needs a number of its own, other than {old}; for the same controller at another address there is `drigs cluster move`"
        )));
    }
    if !knows(old) && !knows(newcomer.id) {
        return Err(Failure::new(code::NOT_FOUND, format!("there is no controller {old}")));
    }
    add(newcomer, wait, session).await?;
    remove(old, session).await
}

async fn catch_up(
    id: u64,
    address: &str,
    wait: CatchUp,
    session: &mut Session<'_, impl Api>,
) -> Result<(), Failure> {
    let deadline = Instant::now() + wait.wait.to_duration();
    let mut said: Option<Instant> = None;
    loop {
        let stands = match session.api.cluster().await {
            Ok(cluster) => {
                let Some(member) = cluster.members.into_iter().find(|member| member.id == id)
                else {
                    return Err(Failure::new(
                        code::FAILED,
                        format!(
                            "controller {id} is not in the list any more: it was removed meanwhile"
                        ),
                    ));
                };
                if member.role != "LEARNER" || member.lag.is_some_and(|lag| lag <= CLOSE_ENOUGH) {
                    return Ok(());
                }
                progress(&member, cluster.last_log)
            }
            // A change of leaders is no reason to stop waiting.
            Err(error) => error.message,
        };
        if Instant::now() >= deadline {
            return Err(Failure::new(
                code::FAILED,
                format!(
                    "controller {id} has not caught up within {}: {stands}. It stays a learner, which does not vote and holds nobody up. \
                     Look at its log and at the network to it; `drigs cluster add {id} {address}` goes on waiting, `drigs cluster remove {id}` gives it up",
                    wait.wait
                ),
            ));
        }
        if said.is_none_or(|said| said.elapsed() >= SAY_EVERY) {
            said = Some(Instant::now());
            session.screen.note(format!("controller {id} catches up: {stands}"));
        }
        sleep(LOOK_EVERY).await;
    }
}

fn progress(member: &MemberView, last: Option<u64>) -> String {
    match (member.reachable, member.matched, last) {
        (Some(false), ..) => String::from("it does not answer the leader"),
        (_, Some(matched), Some(last)) if last > 0 => {
            format!("it has {matched} of {last} entries ({}%)", percent(matched, last))
        }
        _ => String::from("it is being sent a snapshot, or has not answered yet"),
    }
}

pub fn percent(part: u64, whole: u64) -> u64 {
    (u128::from(part.min(whole)) * 100 / u128::from(whole.max(1))) as u64
}
