"""Lines that a terminal has wrapped are put together; equally long lines of other texts are not."""

from __future__ import annotations

from unhang.pasted import paste_of
from unhang.pasted.unwrapping import unwrapped

TIMED_OUT = (
    "[rank1]:[E513 13:25:57.714777142 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum=532339, OpType=BROADCAST, NumelIn=5164000, "
    "NumelOut=5164000, Timeout(ms)=1800000) ran for 1800042 milliseconds before timing out."
)
TAKEN_DOWN = (
    "[rank1]:[E513 13:25:57.716 ProcessGroupNCCL.cpp:630] [Rank 1] Some NCCL operations have "
    "failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU "
    "operations might run on corrupted/incomplete data."
)


def wrapped(message: str, width: int, *, padded: bool) -> list[str]:
    """A message as a terminal of so many columns shows it."""
    lines = [message[begin : begin + width] for begin in range(0, len(message), width)]
    return [line.ljust(width) for line in lines] if padded else lines


def test_what_a_terminal_wrapped_is_one_message_again() -> None:
    """With and without the blanks up to its edge; numbers of lines stay."""
    for padded in (True, False):
        lines = wrapped(TIMED_OUT, 75, padded=padded) + wrapped(TAKEN_DOWN, 75, padded=padded)
        made = unwrapped(lines)
        assert len(made) == len(lines)
        assert [line for line in made if line] == [TIMED_OUT, TAKEN_DOWN]
        assert made[0] == TIMED_OUT


def test_a_wrapped_time_out_is_read() -> None:
    """The sequence number stands in two lines of the screen."""
    cut = TIMED_OUT.index("532339") + 3
    text = "\n".join(wrapped(TIMED_OUT, cut, padded=True) + wrapped(TAKEN_DOWN, cut, padded=True))
    events = paste_of({"post.txt": text.encode()}).case.log_events
    assert [event.fields.get("seq") for event in events if "seq" in event.fields] == ["532339"]


def test_a_message_that_was_broken_between_words_is_one_again() -> None:
    """As a page or a person breaks it; what the next record is stays apart."""
    head, rest = TIMED_OUT.split(" WorkNCCL")
    work, ran = f"  WorkNCCL{rest}".split(" ran for")
    made = unwrapped([f"{head} ", work, f"  ran for{ran}", TAKEN_DOWN])
    assert made == [TIMED_OUT, "", "", TAKEN_DOWN]


def test_lines_of_one_length_are_not_put_together() -> None:
    """Tables and reports that repeat; a table's lines all fill its width."""
    table = ["| N/A   37C    P0             112W / 700W |  46103MiB / 81559MiB |    100% |"] * 4
    reports = [f"INFO 09-06 04:08:1{n} Avg generation throughput: 623.9 tokens/s, Running: 32 reqs"
               for n in range(4)]  # fmt: skip
    for lines in (table, reports, [TIMED_OUT] * 4, ["#0  0x00007f in f () from lib.so" * 3] * 4):
        assert unwrapped(lines) == lines
