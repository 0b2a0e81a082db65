"""Tenant isolation in shared stores: a private PostgreSQL and Redis, with two replicas in front of each."""

import asyncio
import contextlib
import secrets

from kit import ROOT, Tenant, Unexpected, attack, require, route
from tenancy import isolated, stream
from upstreams import Upstream
from wire import ask


@contextlib.asynccontextmanager
async def engines():
    """Runs both servers through tests/engines; yields their URLs."""
    script = 'echo "$CITETAP_TEST_POSTGRES $CITETAP_TEST_REDIS"; exec cat'
    process = await asyncio.create_subprocess_exec(
        ROOT / "tests" / "engines",
        "bash",
        "-c",
        script,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode().split()
        if len(line) != 2:
            raise Unexpected(f"no engines: {(await process.stderr.read()).decode()[-300:]}")
        yield line
    finally:
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), 15)
        except TimeoutError:
            process.terminate()
            await process.wait()


@attack("404 as for unknown ids, through either replica", needs="redis-server")
async def ids_of_another_tenant_in_shared_stores(kit):
    """Makes every call with B's key and A's ids, through two replicas on PostgreSQL and on Redis."""
    total = 0
    async with engines() as (postgres, redis):
        for store in (postgres, f"{redis}?prefix={secrets.token_hex(4)}"):
            alpha, beta = Tenant("alpha"), Tenant("beta")
            async with Upstream(stream) as upstream, contextlib.AsyncExitStack() as stack:
                toml = f'[timeouts]\ncommit = "5s"\n{route("l0", upstream.port)}{alpha.toml}{beta.toml}'
                first, second = [await stack.enter_async_context(kit.citetap(toml, store=store)) for _ in range(2)]
                total += await isolated(first, alpha, beta, others=(second,))
                for odd in ("a-1%00", "*", "a-?", "[a]-1", "%25", "a_1", "A-1", "a-1%20"):
                    response = await ask(second, "GET", f"/citations/{odd}", beta.headers)
                    require(response.status in (400, 404), f"{odd}: {response.status}")
                for query in (
                    "?q=%25",
                    "?q=_",
                    "?conversation=%25",
                    "?domain=*",
                    "?q=%27%3B--",
                    "?cursor=AAAA",
                    "?provider=%25",
                ):
                    response = await ask(second, "GET", f"/citations{query}", beta.headers)
                    require(
                        response.status in (200, 400) and b"a-1" not in response.body,
                        f"{query}: {response.status} {response.text[:100]}",
                    )
    return f"{total} calls alike"
