# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import signal

from clikit import Opener, invoke
from fakes import ByteTokenizer
from llmkit import make_llm, text_after
from octavo.cli.chat import Conversation
from octavo.types.sampling_params import SamplingParams

TWO = SamplingParams(temperature=0, max_tokens=2)
FIRST = "[user]hi[assistant]"


def conversation(**engine):
    llm, assembled = make_llm(**engine)
    return Conversation(llm, TWO, system=None, stats=False), assembled


def test_the_conversation_grows_by_question_and_answer(capsys):
    talk, _ = conversation()
    talk.take("hi")
    answer = text_after(len(FIRST), 2)
    assert capsys.readouterr().out == answer + "\n"
    assert talk.messages == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": answer},
    ]
    talk.take("x")
    history = f"[user]hi[assistant]{answer}[user]x[assistant]"
    assert capsys.readouterr().out == text_after(len(history), 2) + "\n"


def test_reset_forgets_everything_but_the_system_message(capsys):
    llm, _ = make_llm()
    talk = Conversation(llm, TWO, system="be kind", stats=False)
    talk.take("hi")
    talk.take("/reset")
    assert talk.messages == [{"role": "system", "content": "be kind"}]


def test_a_conversation_that_no_longer_fits_says_how_to_go_on(capsys):
    talk, assembled = conversation()
    talk.take("x" * 60)
    assert "/reset" in capsys.readouterr().err
    assert talk.messages == []  # what was refused is not remembered
    assert not assembled.engine.has_unfinished()


def test_commands_are_not_sent_to_the_model(capsys):
    talk, _ = conversation()
    for line in ("/help", "/nope"):
        talk.take(line)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "/reset" in captured.err
    assert "there is no command /nope" in captured.err


def test_the_command_reads_until_the_end_of_its_input():
    result = invoke("chat", "-n", "2", "--temperature", "0", input="hi\n\n/reset\nhi\n/exit\nno\n")
    assert result.exit_code == 0
    assert result.stdout == (text_after(len(FIRST), 2) + "\n") * 2
    assert "/help lists the commands" in result.stderr


def test_ctrl_c_stops_the_answer_and_not_the_chat():
    steps = iter(range(100))

    def gate() -> None:
        if next(steps) == 1:
            signal.raise_signal(signal.SIGINT)

    opener = Opener(gate=gate, max_model_len=200)
    result = invoke("chat", "-n", "30", "--temperature", "0", input="hi\nx\n", opener=opener)
    assert result.exit_code == 0
    stopped, second = result.stdout.splitlines()
    assert 0 < len(stopped) < 30
    history = f"{FIRST}{stopped}[user]x[assistant]"  # the part that was shown is remembered
    assert second == text_after(len(history), 30)


def test_a_base_model_is_refused_with_the_command_that_works():
    result = invoke("chat", opener=Opener(tokenizer=ByteTokenizer()))
    assert result.exit_code == 1
    assert "use `octavo run`" in result.stderr
