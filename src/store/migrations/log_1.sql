-- The replicated log: what was agreed to happen, in order.
CREATE TABLE entries (
    idx      INTEGER PRIMARY KEY,
    term     INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    body     BLOB NOT NULL
);
-- One row: what this replica promised and how far the log reaches back.
CREATE TABLE head (
    one             INTEGER PRIMARY KEY CHECK (one = 1),
    vote_term       INTEGER,
    vote_node       INTEGER,
    vote_committed  INTEGER,
    purged_term     INTEGER,
    purged_index    INTEGER,
    committed_term  INTEGER,
    committed_index INTEGER,
    checksum        INTEGER NOT NULL
);
