//! Commands as a person runs them, against a cluster that answers from a script.

mod fake;

use std::io::{self, Write};

use clap::Parser as _;
use expect_test::{Expect, expect};

use self::fake::{Fake, NOW};
use super::{Arguments, Session, carry_out, screen::Screen};
use crate::model::UserName;
use crate::rpc::api::{Consistency, ErrorKind};

/// What stdout, stderr and the exit code are, in this order.
fn run_on(fake: &Fake, line: &str) -> String {
    let words = shlex::split(&format!("drigs {line}")).unwrap();
    let arguments = match Arguments::try_parse_from(words) {
        Ok(arguments) => arguments,
        Err(error) => return format!("usage: {}\n", super::spec::condensed(&error)),
    };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let screen = Screen {
        out: &mut out,
        err: &mut err,
        format: arguments.global.output.unwrap_or_default(),
        header: !arguments.global.no_header,
        width: Some(80),
        colours: false,
        time_zone: jiff::tz::TimeZone::UTC,
        clock: &|| NOW,
        clear: false,
    };
    let (api, user) = (fake.clone(), UserName::from("ada"));
    let session = Session { api, screen, user, consistency: Consistency::Linearizable };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ended = runtime.block_on(carry_out(arguments.command, session));
    let mut text = String::from_utf8(out).unwrap();
    for line in String::from_utf8(err).unwrap().lines() {
        text += &format!("! {line}\n");
    }
    if let Err(failure) = ended {
        if !failure.message.is_empty() {
            text += &format!("! drigs: {}\n", failure.message);
        }
        text += &format!("exit {}\n", failure.code);
    }
    text
}

fn shows(line: &str, expected: Expect) {
    expected.assert_eq(&run_on(&Fake::default(), line));
}

/// Also what the cluster was asked.
fn asks(line: &str, expected: Expect) {
    let fake = Fake::default();
    let mut text = run_on(&fake, line);
    for asked in fake.asked.lock().unwrap().iter() {
        text += &format!("? {asked}\n");
    }
    expected.assert_eq(&text);
}

#[test]
fn the_words_fit_together() {
    use clap::CommandFactory as _;
    Arguments::command().debug_assert();
}

#[test]
fn lists_of_jobs() {
    shows("jobs", expect![[""]]);
    shows("jobs -a --no-header", expect![[""]]);
    shows("queue -o wide", expect![[""]]);
    shows("jobs -o json -n 1", expect![[""]]);
    asks("jobs 3 4 -s R,pd -u eve -p night --name x -n 5 --no-header", expect![[""]]);
    shows("jobs -s gone", expect![[""]]);
    shows("jobs -n 0", expect![[""]]);
    shows("jobs twelve", expect![[""]]);
}

#[test]
fn one_job() {
    shows("inspect 15", expect![[""]]);
    shows("inspect 14", expect![[""]]);
    shows("inspect 12", expect![[""]]);
    shows("inspect 14.3", expect![[""]]);
    shows("inspect 14_100", expect![[""]]);
    shows("inspect 99", expect![[""]]);
    shows("inspect 14 -o yaml", expect![[""]]);
    shows("explain 15", expect![[""]]);
    shows("diagnose 15 -o json", expect![[""]]);
}

#[test]
fn submissions() {
    asks("submit -- true", expect![[""]]);
    asks("submit --parsable -u eve --strict --key k1 -- true", expect![[""]]);
    asks("submit -a 0-9 -o json -- true", expect![[""]]);
    asks("submit --dry-run -a 0-9 -G 101 -- true", expect![[""]]);
    asks("submit --wait -- sh -c 'exit 3'", expect![[""]]);
    shows("submit", expect![[""]]);
    shows("submit --key '' -- true", expect![[""]]);
    shows("submit no-such-program", expect![[""]]);
    shows("submit no-such.yaml", expect![[""]]);
    expect![[""]]
        .assert_eq(&run_on(&Fake::failing([ErrorKind::Unavailable]), "submit --key k1 -- true"));
    expect![[""]].assert_eq(&run_on(&Fake::failing([ErrorKind::Invalid]), "submit -- true"));
    expect![[""]].assert_eq(&run_on(&Fake::failing([ErrorKind::Denied]), "submit -- true"));
}

#[test]
fn waiting_passes_the_jobs_code_on() {
    shows("wait 13", expect![[""]]);
    shows("wait 13 12 11", expect![[""]]);
    shows("wait 11 --no-header", expect![[""]]);
    shows("wait 10 -o json --no-header", expect![[""]]);
    shows("wait 14 --timeout 0", expect![[""]]);
}

#[test]
fn output_of_jobs() {
    asks("logs 14", expect![[""]]);
    asks("logs -f 14.3 --tail 5 --node 1", expect![[""]]);
    shows("logs 99", expect![[""]]);
}

#[test]
fn acting_on_jobs() {
    asks("cancel 3 14.3", expect![[""]]);
    asks("cancel -u eve", expect![[""]]);
    shows("cancel", expect![[""]]);
    shows("cancel 3 -u eve", expect![[""]]);
    shows("cancel -s failed", expect![[""]]);
    asks("hold 3", expect![[""]]);
    asks("release 3", expect![[""]]);
    asks("requeue 14_3", expect![[""]]);
    asks("update 3 --priority 9", expect![[""]]);
    shows("update 3 --priority -1", expect![[""]]);
    expect![[""]].assert_eq(&run_on(
        &Fake::failing([ErrorKind::Conflict, ErrorKind::NotFound]),
        "cancel 3 4 5",
    ));
    expect![[""]].assert_eq(&run_on(&Fake::failing([ErrorKind::Unavailable]), "cancel 3 4 5"));
}

#[test]
fn machines() {
    shows("workers", expect![[""]]);
    shows("workers -o wide", expect![[""]]);
    shows("workers -o json", expect![[""]]);
    asks("worker drain gpu-box-1 --reason 'new driver'", expect![[""]]);
    asks("worker resume w1", expect![[""]]);
    asks("worker forget w1 --yes", expect![[""]]);
    shows("gpus", expect![[""]]);
    shows("gpus --free -o wide", expect![[""]]);
}

#[test]
fn the_cluster() {
    shows("status", expect![[""]]);
    shows("status -o json", expect![[""]]);
    shows("cluster status", expect![[""]]);
    asks("cluster add 4 10.0.0.4:7070", expect![[""]]);
    asks("cluster remove 1", expect![[""]]);
    asks("cluster transfer-leader", expect![[""]]);
    asks("cluster transfer-leader 3", expect![[""]]);
    shows("queues", expect![[""]]);
    asks("queue-set night --weight 5 --max-gpus none --close", expect![[""]]);
    asks("queue-set new", expect![[""]]);
}

/// stdout whose reader went away.
struct Gone;

impl Write for Gone {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_reader_that_went_away_is_no_failure() {
    let failure = super::Failure::from(Gone.write(b"x").unwrap_err());
    assert_eq!((failure.code, failure.message.as_str()), (0, ""));
}
