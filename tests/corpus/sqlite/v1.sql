-- A database of version 1 as it was released. Never edit this file: it stands for the files that users have.
PRAGMA application_id = 1164866663;
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
CREATE INDEX sessions_by_update ON sessions (updated DESC, id);
CREATE INDEX sessions_by_parent ON sessions (parent, updated DESC, id);
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
INSERT INTO sessions VALUES
    ('talk', NULL, 'user', 1763000000000000, 2, 'running', '019a7b1c-0000-7000-8000-000000000001', 'scout',
     'Which file here is the longest?', 1, 1200, 40, NULL, 0, NULL, 4200000000, 1763000000000002),
    ('talk.2$$0', 'talk', 'child', 1763000000000001, 1, 'idle', NULL, 'reader', '', 0, NULL, NULL, NULL, NULL, NULL,
     NULL, 1763000000000001);
INSERT INTO events VALUES
    ('talk', 1, 1763000000000000, 'run_started', '019a7b1c-0000-7000-8000-000000000001', 'scout', -1,
     '{"format":1,"agent":"scout","prompt":{"role":"user","parts":[{"text":"Which file here is the longest?"}]}}'),
    ('talk', 2, 1763000000000002, 'warning', '019a7b1c-0000-7000-8000-000000000001', 'scout', -1,
     '{"text":"slow disk"}'),
    ('talk.2$$0', 1, 1763000000000001, 'a_kind_of_later', '019a7b1c-0000-7000-8000-000000000002', 'scout/reader', 7,
     '{}');
