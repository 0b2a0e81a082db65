-- n is stable over an upsert, so that record_domain need not repeat the text of the key.
CREATE TABLE record (
    n            INTEGER PRIMARY KEY,
    tenant       TEXT    NOT NULL,
    provider     TEXT    NOT NULL,
    id           TEXT    NOT NULL,
    created_ms   INTEGER NOT NULL,
    conversation TEXT,
    -- JSON: the record, and the tenant that it was stored for.
    body         TEXT    NOT NULL,
    -- Lower-cased by citetap: SQLite's lower() knows ASCII only.
    search       TEXT    NOT NULL,
    UNIQUE (tenant, provider, id)
) STRICT;

CREATE INDEX record_newest ON record (tenant, created_ms DESC, provider, id);
CREATE INDEX record_by_id ON record (tenant, id, created_ms DESC, provider);
CREATE INDEX record_of_conversation ON record (tenant, conversation, created_ms DESC, provider, id)
    WHERE conversation IS NOT NULL;
CREATE INDEX record_age ON record (created_ms);

-- A cited hostname and each of its parent domains.
CREATE TABLE record_domain (
    record     INTEGER NOT NULL REFERENCES record (n) ON DELETE CASCADE,
    domain     TEXT    NOT NULL,
    tenant     TEXT    NOT NULL,
    created_ms INTEGER NOT NULL,
    PRIMARY KEY (record, domain)
) STRICT, WITHOUT ROWID;

CREATE INDEX record_domain_newest ON record_domain (tenant, domain, created_ms DESC, record);

-- Written by a health check: the only proof that writing works.
CREATE TABLE probe (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    n   INTEGER NOT NULL
) STRICT;
