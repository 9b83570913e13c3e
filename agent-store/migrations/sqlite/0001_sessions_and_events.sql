-- Version 1: sessions, their heads, and their events. README.md documents the columns.
-- Never edit a migration that was released: add the next one.

PRAGMA application_id = 1164866663; -- "Entg"
PRAGMA user_version = 1;

CREATE TABLE sessions (
    id                 TEXT    NOT NULL PRIMARY KEY,
    parent             TEXT             REFERENCES sessions (id) ON DELETE CASCADE,
    role               TEXT    NOT NULL,
    created            INTEGER NOT NULL,
    seq                INTEGER NOT NULL CHECK (seq >= 0),
    status             TEXT    NOT NULL CHECK (status IN ('idle', 'running', 'paused')),
    run                TEXT,
    agent              TEXT    NOT NULL,
    title              TEXT    NOT NULL,
    messages           INTEGER NOT NULL CHECK (messages >= 0),
    input_tokens       INTEGER CHECK (input_tokens >= 0),
    output_tokens      INTEGER CHECK (output_tokens >= 0),
    cache_read_tokens  INTEGER CHECK (cache_read_tokens >= 0),
    cache_write_tokens INTEGER CHECK (cache_write_tokens >= 0),
    reasoning_tokens   INTEGER CHECK (reasoning_tokens >= 0),
    cost_pico          INTEGER CHECK (cost_pico >= 0),
    updated            INTEGER NOT NULL
) STRICT;

-- The order of lists: everything, and one parent's children (or the roots).
CREATE INDEX sessions_by_update ON sessions (updated DESC, id);
CREATE INDEX sessions_by_parent ON sessions (parent, updated DESC, id);

-- Bodies may be large, so rows stay in a rowid table; the key's index keeps windows of one session together.
CREATE TABLE events (
    session TEXT    NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    seq     INTEGER NOT NULL CHECK (seq > 0),
    at      INTEGER NOT NULL,
    kind    TEXT    NOT NULL,
    run     TEXT    NOT NULL,
    agent   TEXT    NOT NULL,
    writer  INTEGER NOT NULL,
    body    TEXT    NOT NULL,
    PRIMARY KEY (session, seq)
) STRICT;
