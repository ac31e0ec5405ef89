#!/usr/bin/env python3
"""Compares rows of `unisono eval` with DuckDB's, value by value, on real logs.

    pip install duckdb
    python3 tests/duckdb/compare.py DATA [PROGRAM]

DATA is a folder with the logs below, compressed by gzip; PROGRAM is target/debug/unisono if it is not given. Both compute from
the same records: numbers are exact decimals on both sides (DuckDB's own reader of JSON makes doubles of them, so it takes the text), and no record is late, for DuckDB knows no late ones. Ends with 1
if any row or value differs.
"""

import gzip
import json
import subprocess
import sys
import tempfile
from decimal import Decimal
from pathlib import Path

import duckdb

# Three streams of other speeds, merged; keys with literal dots, texts with fractions of a second, a number that is often missing.
ZEEK = r"""
name = "zeek"
sources = ["dns", "tls", "weird"]
time = { field = "ts", format = "rfc3339" }
where = "\"id.resp_p\" <> 0 or \"id.resp_p\" is null"
group_by = ["_path", "\"id.resp_h\""]
window = { size = "1m" }
close = { lag = "1h" }
[values]
n = "count()"
answered = "count(rtt)"
total = "sum(rtt)"
least = "min(rtt)"
most = "max(rtt)"
ports = "sum(\"id.orig_p\")"
rejected = "count() where rejected"
"""
ZEEK_SQL = """
with record as (
    select json->>'$._path' as path, json->>'$."id.resp_h"' as host,
           (json->>'$.ts')::timestamp as moment, nullif(regexp_extract(json::text, '"rtt":([-+.eE0-9]+)', 1), '')::decimal(38, 26) as rtt,
           (json->>'$."id.orig_p"')::bigint as port, (json->>'$."id.resp_p"')::bigint as target,
           json->>'$.rejected' as rejected
    from read_ndjson_objects({files}))
select date_trunc('minute', moment), path, host, count(*), count(rtt), sum(rtt), min(rtt), max(rtt), sum(port),
       count(*) filter (where rejected = 'true')
from record where target <> 0 or target is null group by all
"""

# Nested documents, keys with dots inside objects, counters above 2^32, epoch milliseconds, elements of arrays.
NGINX = r"""
name = "nginx"
sources = ["status"]
time = { field = "timestamp", format = "ms" }
group_by = ["address", "pid"]
window = { size = "1m", slide = "20s" }
close = { lag = "1d" }
[values]
n = "count()"
sent = "sum(server_zones.\"hg.nginx.org\".sent)"
first = "min(server_zones.\"hg.nginx.org\".responses.\"2xx\")"
last = "max(server_zones.\"trac.nginx.org\".received)"
peer = "max(upstreams.\"trac-backend\".peers[0].requests)"
"""
NGINX_SQL = """
with record as (
    select (json->>'$.timestamp')::bigint as moment, json->>'$.address' as address, (json->>'$.pid')::bigint as pid,
           (json->>'$.server_zones."hg.nginx.org".sent')::hugeint as sent,
           (json->>'$.server_zones."hg.nginx.org".responses."2xx"')::hugeint as good,
           (json->>'$.server_zones."trac.nginx.org".received')::hugeint as received,
           (json->>'$.upstreams."trac-backend".peers[0].requests')::hugeint as requests
    from read_ndjson_objects({files})),
step as (select *, (moment // 20000 - step.unnest) * 20000 as start from record, unnest([0, 1, 2]) as step)
select make_timestamp(start * 1000), address, pid, count(*), sum(sent), min(good), max(received), max(requests)
from step group by all
"""

# Lines by a regular expression, and by the layout that has its name; a dash is null, a size is a number where it is one.
APACHE = r"""
name = "web"
sources = ["access"]
format = "apache_combined"
time = { field = "time", format = "%d/%b/%Y:%H:%M:%S %z" }
group_by = ["method", "status"]
window = { size = "1h" }
close = { lag = "1d" }
[values]
n = "count()"
sized = "count(bytes)"
bytes = "sum(bytes)"
least = "min(bytes)"
hosts = "count(distinct host)"
images = "count() where path like '%.png'"
"""
APACHE_PATTERN = (
    APACHE.replace(
        'format = "apache_combined"',
        r"""format = { kind = "regex", null = "-", pattern = '^(?<host>\S+) \S+ \S+ \[(?<time>[^\]]+)\] "(?<method>\S+) (?<path>\S+)[^"]*" (?<status>\d+) (?<bytes>\S+) ' }""",
    )
)
APACHE_SQL = r"""
with record as (
    select regexp_extract(line, '^(\S+) \S+ \S+ \[([^\]]+)\] "(\S+) (\S+)[^"]*" (\d+) (\S+) ',
                          ['host', 'time', 'method', 'path', 'status', 'bytes']) as it
    from read_csv({files}, columns = {'line': 'varchar'}, delim = '\x01', quote = '', escape = '', header = false)),
typed as (
    select strptime(it.time, '%d/%b/%Y:%H:%M:%S %z')::timestamptz at time zone 'UTC' as moment, it.host as host, it.method as method,
           it.path as path, it.status::bigint as status, nullif(it.bytes, '-')::hugeint as bytes
    from record)
select date_trunc('hour', moment), method, status, count(*), count(bytes), sum(bytes), min(bytes), count(distinct host),
       count(*) filter (where path like '%.png')
from typed group by all
"""

CASES = [
    (ZEEK, ZEEK_SQL, ["zeek_dns.json.gz", "zeek_ssl.json.gz", "zeek_weird.json.gz"]),
    (NGINX, NGINX_SQL, ["nginxplus.ndjson.gz"]),
    (APACHE, APACHE_SQL, ["apache_logs.gz"]),
    (APACHE_PATTERN, APACHE_SQL, ["apache_logs.gz"]),
]


def plain(value):
    """Numbers as exact decimals, whatever type or scale they come in."""
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        return Decimal(str(value)).normalize() + 0
    return value


def ours(program, folder, pipeline, files):
    definition = folder / "pipeline.toml"
    definition.write_text(pipeline)
    command = [program, "eval", definition, *files, "--format", "ndjson"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    print(done.stderr.strip())
    rows = {}
    for line in done.stdout.splitlines():
        row = json.loads(line, parse_float=Decimal)
        key = (row["start"], *map(plain, row["group"].values()))
        assert key not in rows, f"twice: {key}"
        rows[key] = [plain(value) for value in row["values"].values()]
    return rows, len(row["group"])


def theirs(sql, files, groups):
    listed = "[" + ", ".join(f"'{file}'" for file in files) + "]"
    rows = {}
    for start, *cells in duckdb.sql(sql.replace("{files}", listed)).fetchall():
        cells = [plain(cell) for cell in cells]
        rows[(start.strftime("%Y-%m-%dT%H:%M:%SZ"), *cells[:groups])] = cells[groups:]
    return rows


def compare(program, data, pipeline, sql, names):
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        files = []
        for name in names:
            files.append(folder / name.removesuffix(".gz"))
            files[-1].write_bytes(gzip.decompress((data / name).read_bytes()))
        left, groups = ours(program, folder, pipeline, files)
        right = theirs(sql, files, groups)
    differ = [key for key in left.keys() | right.keys() if left.get(key) != right.get(key)]
    print(f"{', '.join(names)}: {len(left)} rows, {len(right)} of DuckDB, {len(differ)} differ")
    for key in sorted(differ, key=str)[:10]:
        print(f"  {key}\n    unisono {left.get(key)}\n    duckdb  {right.get(key)}")
    return not differ


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    data = Path(sys.argv[1])
    program = sys.argv[2] if len(sys.argv) == 3 else "target/debug/unisono"
    if not all([compare(program, data, *case) for case in CASES]):
        sys.exit(1)


if __name__ == "__main__":
    main()
