# SPDX-License-Identifier: Apache-2.0
"""What the control plane needs from outside, as Protocols. Fakes of each live in
``tests/fakes.py``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from octavo.types.step import StepPlan, StepResult


class Clock(Protocol):
    def __call__(self) -> float:
        """Seconds on a monotonic clock; only differences mean anything."""


class Executor(Protocol):
    """Runs plans in the order given. One thread may submit and collect; not safe for two."""

    @property
    def num_blocks(self) -> int:
        """Blocks in the KV pool."""

    @property
    def block_size(self) -> int:
        """Token slots in a block."""

    @property
    def num_swap_blocks(self) -> int:
        """Blocks in the swap tier; 0 when there is none."""

    @property
    def num_rows(self) -> int:
        """Rows the worker keeps: the most sequences that may be live at once."""

    @property
    def depth(self) -> int:
        """Plans that may be in flight: 1 for an executor that computes at once."""

    def submit(self, plan: StepPlan) -> None:
        """Hand over a plan. Raises ``StepFailed`` only when the data plane cannot go on at all."""

    def collect(self) -> StepResult:
        """The result of the oldest plan submitted and not collected; blocks, without the GIL.

        Raises ``StepFailed`` when that plan failed: none of its tokens can be trusted, but its rows
        are closed and opened, and the executor goes on.
        """

    def close(self) -> None:
        """Free weights, KV memory and threads. Idempotent."""


class Tokenizer(Protocol):
    """Text to ids and back. Pure and thread-safe: the server tokenises off the event loop."""

    @property
    def vocab_size(self) -> int:
        """As many as there are logits: every id below it can be sampled, and no other."""

    @property
    def bos_token_id(self) -> int | None: ...

    @property
    def eos_token_id(self) -> int | None: ...

    @property
    def stop_token_ids(self) -> frozenset[int]:
        """Every id that ends an answer: end of sequence, end of turn."""

    @property
    def chat_template(self) -> str | None: ...

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Ids of ``text``. Control tokens spelt out in ``text`` become their ids (templates need
        it)."""

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Text of ``token_ids``; bytes that are no UTF-8 become U+FFFD."""

    def token_bytes(self, token_id: int) -> bytes:
        """The exact bytes that one token adds to a running text."""

    def is_special(self, token_id: int) -> bool:
        """Control tokens, which ``skip_special_tokens`` leaves out of the text."""

    def render_chat(
        self,
        messages: Sequence[dict[str, object]],
        *,
        add_generation_prompt: bool = True,
        variables: Mapping[str, object] | None = None,
    ) -> str:
        """The prompt text of a conversation, by the model's own chat template. It is complete, BOS
        included if the model wants it: encode it with ``add_special_tokens=False``.

        ``variables`` are the template's own beside the messages: tools, documents, enable_thinking.

        Raises ``InvalidRequest`` when the model has none or the template refuses the messages.
        """


class Constraint(Protocol):
    """What one sequence may say next: a grammar and how far the sequence has come in it.

    Only the engine's thread calls it. Its state is a function of the tokens accepted, so it
    survives preemption by staying where it is.
    """

    def allowed(self) -> bytes:
        """The bit mask that ``RowWork.allowed`` describes, for the token after those accepted. At
        least one bit is set. Made already: it costs nothing and cannot fail."""

    def accept(self, token_id: int) -> int:
        """This was sampled; what the sequence gets, which is another token only where the grammar
        must be completed before the tokens run out. Makes the next mask, well under a millisecond.

        Raises ``CorruptState`` if the token was not allowed, ``GrammarFailed`` when a limit is
        exceeded.
        """

    @property
    def is_complete(self) -> bool:
        """The text satisfies the grammar and nothing but the end may follow."""

    @property
    def was_cut(self) -> bool:
        """The text was completed early, because the tokens would have run out."""


class Grammar(Protocol):
    """A compiled grammar. Immutable, so any thread may hold it."""

    def start(self, *, num_tokens_max: int | None = None) -> Constraint:
        """A constraint at its beginning. With ``num_tokens_max`` it steers to a complete text when
        the number of tokens left runs out; admission has made sure that so many suffice."""
