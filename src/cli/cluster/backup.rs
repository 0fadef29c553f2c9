//! `drigs cluster backup|inspect-backup|restore`.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
};

use clap::Args;
use futures::StreamExt as _;

use crate::cli::{
    Session,
    failure::{Failure, code},
    screen::Screen,
};
use crate::rpc::{
    api::{Api, ApiError},
    offline::{BackupView, RestoreRequest, RestoredView},
};

#[derive(Args, Clone, Debug)]
pub struct BackupArgs {
    /// Where it goes; - for stdout
    file: PathBuf,
    /// Of a controller that does not run: its data directory
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub struct RestoreArgs {
    file: PathBuf,
    /// Where the new cluster's first controller keeps its data: an empty directory, or none yet
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// The number of that controller
    #[arg(long)]
    id: u64,
    /// Where it will listen, as for drigs-controller: 1=host:7070. Others are added once it runs
    #[arg(long)]
    peers: String,
    /// My word that the cluster of the backup is gone for good: its workers may come over by themselves
    #[arg(long)]
    adopt_workers: bool,
}

pub async fn backup(args: BackupArgs, session: &mut Session<'_, impl Api>) -> Result<(), Failure> {
    let to_stdout = args.file.as_os_str() == "-";
    match args.data_dir {
        Some(_) if to_stdout => Err(Failure::usage(
            "with --data-dir the backup goes to a file, so that it can be read back: name one",
        )),
        Some(data_dir) => {
            let view = session.offline.backup(&data_dir, &args.file)?;
            show(&view, session)
        }
        None if to_stdout => {
            let mut chunks = session.api.backup().await?;
            while let Some(chunk) = chunks.next().await {
                session.screen.write(&chunk?)?;
            }
            session.screen.note("the backup is complete; `drigs cluster inspect-backup FILE` checks it where it lies");
            Ok(())
        }
        None => {
            let view = fetch(&args.file, session).await?;
            show(&view, session)
        }
    }
}

pub fn inspect(file: &Path, session: &mut Session<'_, impl Api>) -> Result<(), Failure> {
    let view = session.offline.inspect(file)?;
    show(&view, session)
}

/// To a draft beside the file first: what has that name already stays until the new one is known to be sound.
async fn fetch(file: &Path, session: &Session<'_, impl Api>) -> Result<BackupView, Failure> {
    let mut draft = file.as_os_str().to_owned();
    draft.push(".part");
    let draft = PathBuf::from(draft);
    let fetched = fetch_into(&draft, file, session).await;
    if fetched.is_err() {
        let _ = fs::remove_file(&draft);
    }
    fetched
}

async fn fetch_into(
    draft: &Path,
    file: &Path,
    session: &Session<'_, impl Api>,
) -> Result<BackupView, Failure> {
    let cannot = |error: std::io::Error| {
        Failure::new(code::FAILED, format!("cannot write {}: {error}", file.display()))
    };
    let mut out = File::create(draft).map_err(cannot)?;
    let mut chunks = session.api.backup().await?;
    while let Some(chunk) = chunks.next().await {
        out.write_all(&chunk.map_err(broken)?).map_err(cannot)?;
    }
    out.sync_all().map_err(cannot)?;
    let view = session.offline.inspect(draft)?;
    fs::rename(draft, file).map_err(cannot)?;
    let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(cannot)?;
    Ok(BackupView { file: file.display().to_string(), ..view })
}

fn broken(error: ApiError) -> Failure {
    let ApiError { kind, message } = error;
    ApiError { kind, message: format!("the backup broke off, ask again: {message}") }.into()
}

fn show(view: &BackupView, session: &mut Session<'_, impl Api>) -> Result<(), Failure> {
    session.screen.show(view, |screen| text(view, screen))
}

fn text(view: &BackupView, screen: &Screen<'_>) -> String {
    let BackupView { file, cluster_id, controller, version, state_hash, .. } = view;
    let beyond = match view.entries_beyond {
        0 => String::new(),
        count => format!(
            "\nNot in it    {count} entries of the log that this controller had not applied: start it and back it up again to have them"
        ),
    };
    format!(
        "Backup       {file}, {} bytes, sound\n\
         Cluster      {cluster_id}\n\
         Taken        {} by controller {controller}, version {version}\n\
         State        entry {} of term {}, hash {}, feature level {}\n\
         Jobs         {} submitted; {} tasks had a place on {} workers{beyond}\n",
        view.file_bytes,
        screen.moment_and_age(view.taken_at),
        view.applied_index,
        view.applied_term,
        state_hash.get(..10).unwrap_or(state_hash),
        view.feature_level,
        view.jobs_submitted,
        view.active_tasks,
        view.workers,
    )
}

pub fn restore(args: RestoreArgs, session: &mut Session<'_, impl Api>) -> Result<(), Failure> {
    let RestoreArgs { file, data_dir, id, peers, adopt_workers } = args;
    let address = address_of(id, &peers)?;
    let request = RestoreRequest { file, data_dir, id, address, adopt_workers };
    let restored = session.offline.restore(request)?;
    session.screen.show(&restored, |screen| restored_text(&restored, adopt_workers, screen))
}

fn address_of(id: u64, peers: &str) -> Result<String, Failure> {
    let own = peers.split(',').filter_map(|part| part.trim().split_once('='));
    let mut own = own.filter(|(number, _)| number.parse() == Ok(id));
    match own.next() {
        Some((_, address)) if address.contains(':') => Ok(address.to_owned()),
        _ => Err(Failure::usage(format!(
            "--peers {peers} does not say where controller {id} listens: write {id}=HOST:PORT"
        ))),
    }
}

fn restored_text(restored: &RestoredView, adopts: bool, screen: &Screen<'_>) -> String {
    let RestoredView { cluster_id, controller, address, data_dir, backup } = restored;
    let workers = match adopts {
        true => format!(
            "Workers of cluster {} may come over by themselves, by your word that it is gone for good",
            backup.cluster_id
        ),
        false => format!(
            "Workers of cluster {} are refused: it may live. If it is gone for good, restore with --adopt-workers",
            backup.cluster_id
        ),
    };
    format!(
        "Restored cluster {cluster_id} (a new one) in {data_dir}, from {} of {}.\n\n\
         It can not know what happened since:\n\
         - {} tasks had a place on a worker. They are RECOVERING until their worker connects and says how they stand,\n  \
           or `drigs worker forget NAME` says that it is gone. None of them is given up by time.\n\
         - Jobs that waited then may have run since. None of them starts before each of the {} workers of that time has\n  \
           connected or was forgotten; what is over by then runs again all the same.\n\
         - Jobs submitted since are not in it. What workers still run of them is stopped when they connect.\n\
         - {workers}.\n\n\
         Next:\n  \
           drigs-controller --id {controller} --peers {controller}={address} --data-dir {data_dir} …\n  \
           drigs cluster add NUMBER HOST:7070      for each further controller, started with an empty directory\n",
        backup.file,
        screen.moment(backup.taken_at),
        backup.active_tasks,
        backup.workers,
    )
}
