-- Version 1: sessions, their heads and leases, and their events. README.md documents the columns.
-- Never edit a migration that was released: add the next one.

-- One row for each version that the tables went through. The store adds it after the migration.
CREATE TABLE entourage_schema (
    version BIGINT      NOT NULL PRIMARY KEY CHECK (version > 0),
    applied TIMESTAMPTZ NOT NULL DEFAULT now()
);

CREATE TABLE sessions (
    id                 TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    parent             TEXT COLLATE "C" CONSTRAINT sessions_parent_exists REFERENCES sessions (id) ON DELETE CASCADE,
    role               TEXT COLLATE "C" NOT NULL,
    created            BIGINT           NOT NULL,
    seq                BIGINT           NOT NULL CHECK (seq >= 0),
    status             TEXT COLLATE "C" NOT NULL CHECK (status IN ('idle', 'running', 'paused')),
    run                TEXT COLLATE "C",
    agent              TEXT COLLATE "C" NOT NULL,
    title              TEXT COLLATE "C" NOT NULL,
    messages           BIGINT           NOT NULL CHECK (messages >= 0),
    input_tokens       BIGINT           CHECK (input_tokens >= 0),
    output_tokens      BIGINT           CHECK (output_tokens >= 0),
    cache_read_tokens  BIGINT           CHECK (cache_read_tokens >= 0),
    cache_write_tokens BIGINT           CHECK (cache_write_tokens >= 0),
    reasoning_tokens   BIGINT           CHECK (reasoning_tokens >= 0),
    cost_pico          BIGINT           CHECK (cost_pico >= 0),
    updated            BIGINT           NOT NULL,
    -- The bits of an unsigned number, as in events.writer.
    lease_owner        BIGINT,
    lease_generation   BIGINT           CHECK (lease_generation >= 0),
    lease_until        BIGINT,
    checkpoint         BIGINT           NOT NULL CHECK (checkpoint >= 0),
    CONSTRAINT sessions_lease_is_whole CHECK (
        (lease_owner IS NULL) = (lease_until IS NULL) AND (lease_generation IS NULL) = (lease_until IS NULL)
    )
);

-- The order of lists: everything, and one parent's children (or the roots).
CREATE INDEX sessions_by_update ON sessions (updated DESC, id);
CREATE INDEX sessions_by_parent ON sessions (parent, updated DESC, id);

-- The body is JSON, kept as text: it comes back byte for byte, and JSON may hold what jsonb refuses.
CREATE TABLE events (
    session TEXT COLLATE "C" NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    seq     BIGINT           NOT NULL CHECK (seq > 0),
    at      BIGINT           NOT NULL,
    kind    TEXT COLLATE "C" NOT NULL,
    run     TEXT COLLATE "C" NOT NULL,
    agent   TEXT COLLATE "C" NOT NULL,
    writer  BIGINT           NOT NULL,
    body    TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (session, seq)
);
