-- What the cluster knows. `body` is the whole row as the program reads it; the other columns are for people.
-- Rows with archived = 1 have left the program's memory and stay as history.
CREATE TABLE jobs (
    id           INTEGER PRIMARY KEY,
    name         TEXT NOT NULL,
    user         TEXT NOT NULL,
    queue        TEXT NOT NULL,
    priority     INTEGER NOT NULL,
    state        TEXT NOT NULL,
    tasks        INTEGER NOT NULL,
    submitted_at TEXT NOT NULL,
    started_at   TEXT,
    finished_at  TEXT,
    exit_code    INTEGER,
    archived     INTEGER NOT NULL,
    body         TEXT NOT NULL
);
CREATE INDEX jobs_living ON jobs (id) WHERE archived = 0;

CREATE TABLE tasks (
    job        INTEGER NOT NULL,
    idx        INTEGER NOT NULL,
    state      TEXT NOT NULL,
    attempts   INTEGER NOT NULL,
    worker     TEXT,
    placed_at  TEXT,
    started_at TEXT,
    ended_at   TEXT,
    reason     TEXT,
    exit_code  INTEGER,
    signal     INTEGER,
    archived   INTEGER NOT NULL,
    body       TEXT NOT NULL,
    PRIMARY KEY (job, idx)
) WITHOUT ROWID;
CREATE INDEX tasks_living ON tasks (job, idx) WHERE archived = 0;

CREATE TABLE workers (
    id       INTEGER PRIMARY KEY,
    name     TEXT NOT NULL,
    address  TEXT NOT NULL,
    epoch    INTEGER NOT NULL,
    state    TEXT NOT NULL,
    cpus     REAL NOT NULL,
    memory   INTEGER NOT NULL,
    gpus     INTEGER NOT NULL,
    archived INTEGER NOT NULL,
    body     TEXT NOT NULL
);

CREATE TABLE queues (
    name     TEXT PRIMARY KEY,
    priority INTEGER NOT NULL,
    weight   INTEGER NOT NULL,
    open     INTEGER NOT NULL,
    archived INTEGER NOT NULL,
    body     TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE idempotency_keys (
    key      TEXT PRIMARY KEY,
    job      INTEGER NOT NULL,
    used_at  TEXT NOT NULL,
    archived INTEGER NOT NULL,
    body     TEXT NOT NULL
) WITHOUT ROWID;

-- applied_term, applied_index, membership, members_ever, counters, state_hash, cluster_id.
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value BLOB NOT NULL
) WITHOUT ROWID;
