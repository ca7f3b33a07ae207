"""Two ends of a connection: proofs, sealed messages, and bytes that no supervisor sends."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unhang.run.meeting.sealing import MOST, Guest, Host, MessageKind, Sealed, WireError

TOKEN = b"0123456789abcdef"


def proved(
    token: bytes = TOKEN, job: str = "job", guest_token: bytes = TOKEN, guest_job: str = "job"
) -> tuple[Sealed, Sealed]:
    """Both ends after a handshake: the host's and the guest's."""
    host, guest = Host(token, job), Guest(guest_token, guest_job)
    answer, _, _ = guest.take(host.greeting)
    taken = host.take(answer)
    assert taken is not None
    proof, ours, _ = taken
    _, theirs, _ = guest.take(proof)
    assert theirs is not None
    return ours, theirs


def test_both_ends_speak_after_their_proofs() -> None:
    """Whatever the pieces in which bytes come."""
    ours, theirs = proved()
    data = theirs.seal(MessageKind.WORDS, b"one") + theirs.seal(MessageKind.BEAT, b"")
    found = [message for byte in data for message in ours.take(bytes([byte]))]
    assert found == [(MessageKind.WORDS, b"one"), (MessageKind.BEAT, b"")]
    assert [*theirs.take(ours.seal(MessageKind.FILE, b"two"))] == [(MessageKind.FILE, b"two")]


@pytest.mark.parametrize("other", [{"guest_token": b"another token 16"}, {"guest_job": "other"}])
def test_another_token_or_job_is_refused(other: dict[str, object]) -> None:
    """By the host, before it has said more than a number."""
    with pytest.raises(WireError, match="another token"):
        proved(**other)  # type: ignore[arg-type]  # as the table says


def test_a_host_without_the_token_is_refused() -> None:
    """What listens there may be another user's program: it gets no message."""
    host, guest = Host(b"another token 16", "job"), Guest(TOKEN, "job")
    guest.take(host.greeting)
    with pytest.raises(WireError, match="does not have the token"):
        guest.take(b"\0" * 32)


def test_a_proof_is_none_the_second_time() -> None:
    """Each connection draws its own number; nor does a host's proof serve as a guest's."""
    first, second, guest = Host(TOKEN, "job"), Host(TOKEN, "job"), Guest(TOKEN, "job")
    answer, _, _ = guest.take(first.greeting)
    with pytest.raises(WireError):
        second.take(answer)


def test_a_message_comes_once_in_its_order_and_its_direction() -> None:
    """Repeated, left out, or sent back, it is none."""
    ours, theirs = proved()
    one, two = theirs.seal(MessageKind.WORDS, b"1"), theirs.seal(MessageKind.WORDS, b"2")
    assert len([*ours.take(one)]) == 1
    for wrong in (one, theirs.seal(MessageKind.WORDS, b"3")):
        with pytest.raises(WireError, match="not sealed"):
            [*replace(ours, _buffer=bytearray()).take(wrong)]
    with pytest.raises(WireError, match="not sealed"):
        [*theirs.take(one)]
    assert [*ours.take(two)] == [(MessageKind.WORDS, b"2")]


@given(st.data())
def test_no_changed_byte_is_taken(data: st.DataObject) -> None:
    """Nor is anything of the message that it is in."""
    ours, theirs = proved()
    sealed = bytearray(theirs.seal(MessageKind.WORDS, b"a beat, or words"))
    at = data.draw(st.integers(0, len(sealed) - 1))
    sealed[at] ^= data.draw(st.integers(1, 255))
    try:
        assert [*ours.take(bytes(sealed))] == []  # a length that has become longer waits
    except WireError:
        return


@given(st.binary(max_size=200))
def test_what_comes_before_a_proof_is_never_kept(data: bytes) -> None:
    """Noise ends a connection, or is too short to be told from a proof."""
    for end in (Host(TOKEN, "job"), Guest(TOKEN, "job")):
        try:
            taken = end.take(data)
        except WireError:
            continue
        assert taken is None or taken[1] is None
        assert len(end._buffer) < 128


@given(st.integers(0, (1 << 32) - 1))
def test_no_length_makes_it_wait_for_more_than_a_message(length: int) -> None:
    """It is refused before anything is kept."""
    ours, _ = proved()
    head = length.to_bytes(4, "big") + bytes(16)
    if 0 < length <= MOST:
        assert [*ours.take(head)] == []
    else:
        with pytest.raises(WireError, match="length"):
            [*ours.take(head)]


def test_what_is_too_long_is_not_sent() -> None:
    """It would be refused."""
    ours, _ = proved()
    with pytest.raises(WireError, match="too long"):
        ours.seal(MessageKind.FILE, bytes(MOST))
