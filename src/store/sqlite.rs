//! How every SQLite file here is opened.

use std::{fs::File, path::Path, time::Duration};

use rusqlite::{Connection, OpenFlags};

use crate::store::Error;

/// One kind of file: what marks it, and how its schema grew. Migration `n` leads from version `n` to `n + 1`.
pub(super) struct Kind {
    pub application_id: i32,
    pub migrations: &'static [&'static str],
}

/// Opens for writing and brings the schema up to date.
pub(super) fn open(path: &Path, kind: &Kind, pragmas: &str) -> Result<Connection, Error> {
    let fault = Error::sqlite("open", path);
    let mut connection = Connection::open(path).map_err(&fault)?;
    // Nobody else writes these files: whoever holds a lock for so long is a stray process.
    connection.busy_timeout(Duration::from_secs(5)).map_err(&fault)?;
    check(&connection, path, kind)?;
    connection.execute_batch(pragmas).map_err(&fault)?;
    migrate(&mut connection, path, kind)?;
    Ok(connection)
}

/// Opens for reading only.
pub(super) fn open_reader(path: &Path) -> Result<Connection, Error> {
    let fault = Error::sqlite("open", path);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(&fault)?;
    connection.busy_timeout(Duration::from_secs(5)).map_err(&fault)?;
    connection.pragma_update(None, "query_only", true).map_err(&fault)?;
    Ok(connection)
}

/// Whether this is a file of this kind, of a version that this program knows.
pub(super) fn check(connection: &Connection, path: &Path, kind: &Kind) -> Result<(), Error> {
    let (id, version) = (pragma(connection, path, "application_id")?, version(connection, path)?);
    let known = kind.migrations.len() as i64;
    if version > 0 && id != i64::from(kind.application_id) {
        return Err(Error::corrupt(path, "it is an SQLite file, but not one of DRIGS"));
    }
    if version > known {
        return Err(Error::Newer { path: path.to_owned(), found: version, known });
    }
    Ok(())
}

/// SQLite's own check of every page.
pub(super) fn quick_check(connection: &Connection, path: &Path) -> Result<(), Error> {
    let verdict: String = connection
        .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
        .map_err(Error::sqlite("check", path))?;
    match verdict.as_str() {
        "ok" => Ok(()),
        _ => Err(Error::corrupt(path, verdict)),
    }
}

/// Makes what was written to the file, and to the write-ahead log beside it, survive a power cut.
pub(super) fn sync_with_wal(path: &Path) -> Result<(), Error> {
    let mut wal = path.as_os_str().to_owned();
    wal.push("-wal");
    for file in [Path::new(&wal), path] {
        match File::open(file) {
            Ok(open) => open.sync_all().map_err(Error::io("sync", file))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io("sync", file)(error)),
        }
    }
    Ok(())
}

pub(super) fn sync_dir(path: &Path) -> Result<(), Error> {
    File::open(path).and_then(|dir| dir.sync_all()).map_err(Error::io("sync", path))
}

fn migrate(connection: &mut Connection, path: &Path, kind: &Kind) -> Result<(), Error> {
    let fault = Error::sqlite("migrate", path);
    let from = version(connection, path)?;
    for (step, migration) in kind.migrations.iter().enumerate().skip(from as usize) {
        let transaction = connection.transaction().map_err(&fault)?;
        transaction.execute_batch(migration).map_err(&fault)?;
        transaction.pragma_update(None, "application_id", kind.application_id).map_err(&fault)?;
        transaction.pragma_update(None, "user_version", step as i64 + 1).map_err(&fault)?;
        transaction.commit().map_err(&fault)?;
    }
    Ok(())
}

fn version(connection: &Connection, path: &Path) -> Result<i64, Error> {
    pragma(connection, path, "user_version")
}

fn pragma(connection: &Connection, path: &Path, name: &str) -> Result<i64, Error> {
    connection.pragma_query_value(None, name, |row| row.get(0)).map_err(Error::sqlite("open", path))
}
