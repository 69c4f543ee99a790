"""Names are looked up off the loop, remembered for a while, and the last good answer outlives a failing resolver."""

from __future__ import annotations

import asyncio
import socket

import pytest

from lumen_gateway.errors import Failure, Kind
from lumen_gateway.transport.resolve import Resolver, is_literal, system_lookup


class Names:
    """A resolver's answers in order, the last repeating; an exception is raised, "hang" never answers."""

    def __init__(self, *answers: tuple[str, ...] | Exception | str) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str) -> tuple[str, ...]:
        self.asked.append(host)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, str):
            await asyncio.get_running_loop().create_future()
        assert isinstance(answer, tuple)
        return answer


NO_NAME = socket.gaierror(socket.EAI_NONAME, "Name or service not known")


async def failure_of(resolver: Resolver, host: str = "a.test") -> Failure:
    with pytest.raises(Failure) as caught:
        await resolver.addresses(host)
    assert caught.value.kind is Kind.UNREACHABLE
    return caught.value


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "fe80::1"])
async def test_literal_is_its_own_address_and_asks_nobody(host: str) -> None:
    names = Names(NO_NAME)
    assert await Resolver(lookup=names).addresses(host) == (host,)
    assert names.asked == []


@pytest.mark.parametrize("host", ["localhost", "127.1", "0x7f.1", "[::1]", ""])
def test_what_only_looks_like_an_address_is_a_name(host: str) -> None:
    assert not is_literal(host)


async def test_fresh_answer_is_not_asked_for_again() -> None:
    names = Names(("10.0.0.1",))
    resolver = Resolver(lookup=names, ttl_s=3600)
    assert [await resolver.addresses("a.test") for _ in range(3)] == [("10.0.0.1",)] * 3
    assert names.asked == ["a.test"]


async def test_old_answer_is_replaced_by_the_new_one() -> None:
    resolver = Resolver(lookup=Names(("10.0.0.1",), ("10.0.0.2",)), ttl_s=0)
    assert await resolver.addresses("a.test") == ("10.0.0.1",)
    assert await resolver.addresses("a.test") == ("10.0.0.2",)


@pytest.mark.parametrize("fault", [NO_NAME, UnicodeError("label too long"), ()])
async def test_old_answer_serves_while_lookups_fail(fault: Exception | tuple[str, ...]) -> None:
    names = Names(("10.0.0.1",), fault)
    resolver = Resolver(lookup=names, ttl_s=0)
    assert [await resolver.addresses("a.test") for _ in range(4)] == [("10.0.0.1",)] * 4
    assert len(names.asked) == 2  # the failed lookup is not repeated at once


async def test_old_answer_serves_while_lookups_hang() -> None:
    resolver = Resolver(lookup=Names(("10.0.0.1",), "hang"), ttl_s=0, timeout_s=0.01)
    await resolver.addresses("a.test")
    assert await resolver.addresses("a.test") == ("10.0.0.1",)
    await resolver.aclose()


@pytest.mark.parametrize("fault", [NO_NAME, UnicodeError("label too long"), ()])
async def test_name_without_an_address_is_unreachable(fault: Exception | tuple[str, ...]) -> None:
    failure = await failure_of(Resolver(lookup=Names(fault)))
    assert "has no address" in failure.message


async def test_lookup_that_hangs_is_given_up_in_time() -> None:
    resolver = Resolver(lookup=Names("hang"), timeout_s=0.01)
    assert "took too long" in (await failure_of(resolver)).message
    await resolver.aclose()


async def test_lookups_for_one_name_are_shared() -> None:
    names = Names(("10.0.0.1",))
    resolver = Resolver(lookup=names)
    assert await asyncio.gather(*(resolver.addresses("a.test") for _ in range(5))) == [("10.0.0.1",)] * 5
    assert names.asked == ["a.test"]


async def test_caller_that_gives_up_leaves_the_lookup_to_the_others() -> None:
    release = asyncio.Event()

    async def lookup(host: str) -> tuple[str, ...]:
        await release.wait()
        return (f"{host}!",)

    resolver, loop = Resolver(lookup=lookup), asyncio.get_running_loop()
    first, second = (loop.create_task(resolver.addresses("a"), name=f"caller {number}") for number in (1, 2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    release.set()
    assert await second == ("a!",)
    assert first.cancelled()


async def test_system_knows_localhost() -> None:
    addresses = await system_lookup("localhost")
    assert set(addresses) & {"127.0.0.1", "::1"}
    assert len(set(addresses)) == len(addresses)
