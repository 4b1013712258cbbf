# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading

import pytest

from fakes import ByteTokenizer
from llmkit import make_llm, text_after
from octavo.types.beam_search_params import BeamSearchParams
from octavo.types.errors import EngineStopped, InvalidRequest, PromptTooLong
from octavo.types.sampling_params import SamplingParams

FOUR = SamplingParams(temperature=0, max_tokens=4)


def test_outputs_come_in_the_order_of_the_prompts_whatever_ends_first():
    llm, assembled = make_llm()
    lengths = [9, 1, 5]
    params = [SamplingParams(temperature=0, max_tokens=count) for count in lengths]
    outputs = llm.generate(["a", "bb", "ccc"], params)
    assert [output.prompt for output in outputs] == ["a", "bb", "ccc"]
    assert [output.outputs[0].text for output in outputs] == [
        text_after(idx + 1, count) for idx, count in enumerate(lengths)
    ]
    assert [output.outputs[0].finish_reason for output in outputs] == ["length"] * 3
    assert all(output.finished for output in outputs)
    assembled.engine.check()


@pytest.mark.parametrize(
    "prompts",
    [
        "hi",
        ["hi"],
        ("hi",),
        [104, 105],
        [[104, 105]],
        {"prompt": "hi"},
        {"prompt_token_ids": [104, 105]},
        [{"prompt": "hi", "prompt_token_ids": [104, 105]}],
    ],
)
def test_a_prompt_may_be_written_in_each_of_these_ways(prompts):
    llm, _ = make_llm()
    (output,) = llm.generate(prompts, FOUR)
    assert output.prompt_token_ids == (104, 105)
    assert output.outputs[0].text == text_after(2, 4)


def test_no_prompts_are_no_outputs():
    llm, _ = make_llm()
    assert llm.generate([]) == []


def test_without_sampling_params_vllms_defaults_hold():
    llm, _ = make_llm()
    (output,) = llm.generate("hi")
    assert output.num_output_tokens == 16


@pytest.mark.parametrize(
    ("prompts", "params", "match"),
    [
        (["ok", ""], FOUR, "prompt is empty"),
        (["ok", "x" * 64], FOUR, "max_model_len"),
        (["ok", [1, 999]], FOUR, "outside the vocabulary"),
        (["ok", 5], FOUR, r"prompts\[1\]: a prompt is a string"),
        (["ok", {"prompt": "x", "multi_modal_data": {}}], FOUR, "multi_modal_data"),
        (["ok", {}], FOUR, "a prompt is a string"),
        (5, FOUR, "a prompt is a string"),
        (["ok", "ok"], [FOUR], "1 sampling_params for 2 prompts"),
        (["ok"], {"max_tokens": 4}, "must be SamplingParams or a list of them, got {'max_tokens"),
        (["ok"], ["no"], "must be SamplingParams"),
    ],
)
def test_bad_input_is_refused_before_anything_runs_and_leaves_nothing(prompts, params, match):
    llm, assembled = make_llm()
    with pytest.raises(InvalidRequest, match=match):
        llm.generate(prompts, params)
    assert not assembled.engine.has_unfinished()
    assembled.engine.check()
    assert llm.generate("ok", FOUR)[0].outputs[0].text == text_after(2, 4)


def test_chat_renders_the_template_once_and_adds_no_special_tokens():
    llm, _ = make_llm()
    (output,) = llm.chat([{"role": "user", "content": "hi"}], FOUR)
    assert output.prompt == "[user]hi[assistant]"
    assert output.prompt_token_ids == tuple(b"[user]hi[assistant]")


def test_chat_takes_several_conversations_and_text_parts():
    llm, _ = make_llm()
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    conversations = [
        [{"role": "user", "content": "x"}],
        [{"role": "user", "content": parts}],
    ]
    outputs = llm.chat(conversations, FOUR, add_generation_prompt=False)
    assert [output.prompt for output in outputs] == ["[user]x", "[user]a\nb"]


def test_chat_goes_on_where_the_last_message_ends():
    llm, _ = make_llm()
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "I am"}]
    (output,) = llm.chat(messages, FOUR, continue_final_message=True)
    assert output.prompt == "[user]hi[assistant]I am"


@pytest.mark.parametrize(
    ("extras", "param"),
    [
        ({"tools": "x"}, "tools"),
        ({"tools": [1]}, "tools[0]"),
        ({"tools": [{"function": {"name": ""}}]}, "tools[0].function.name"),
        ({"chat_template_kwargs": 5}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"tools": 5}}, "chat_template_kwargs.tools"),
        ({"chat_template": "x"}, "chat_template"),
    ],
)
def test_chat_names_the_argument_that_it_cannot_take(extras, param):
    llm, _ = make_llm()
    with pytest.raises(InvalidRequest) as caught:
        llm.chat([{"role": "user", "content": "hi"}], FOUR, **extras)
    assert caught.value.param == param


@pytest.mark.parametrize(
    "messages",
    [
        [],
        "hi",
        [[]],
        [{"role": "user"}],
        [{"content": "x"}],
        [{"role": "user", "content": 5}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
    ],
)
def test_bad_messages_are_refused(messages):
    llm, assembled = make_llm()
    with pytest.raises(InvalidRequest) as caught:
        llm.chat(messages, FOUR)
    assert caught.value.param == "messages"
    assert not assembled.engine.has_unfinished()


def test_a_model_without_a_template_says_so():
    llm, _ = make_llm(tokenizer=ByteTokenizer())
    with pytest.raises(InvalidRequest, match="no chat template"):
        llm.chat([{"role": "user", "content": "hi"}])


def test_a_stream_gives_only_what_is_new_and_adds_up_to_the_whole():
    llm, _ = make_llm()
    outputs = list(llm.stream("hi", FOUR))
    assert [output.outputs[0].text for output in outputs] == list(text_after(2, 4))
    assert [output.num_output_tokens for output in outputs] == [1, 2, 3, 4]
    assert outputs[-1].finished


def test_a_stream_checks_the_prompt_before_the_first_output_is_asked_for():
    llm, _ = make_llm()
    with pytest.raises(PromptTooLong):
        llm.stream("x" * 64)


def test_a_closed_stream_ends_its_request():
    llm, assembled = make_llm()
    stream = llm.stream_chat([{"role": "user", "content": "hi"}], FOUR)
    next(stream)
    stream.close()
    assert not assembled.engine.has_unfinished()
    assembled.engine.check()


@pytest.mark.parametrize("end", [lambda stream: stream.close(), lambda stream: None])
def test_a_stream_that_is_closed_or_dropped_before_its_first_output_ends_its_request(end):
    llm, assembled = make_llm()
    stream = llm.stream("hi", FOUR)
    end(stream)
    del stream
    assert not assembled.engine.has_unfinished()
    assembled.engine.check()


def test_a_finished_stream_stays_finished():
    llm, assembled = make_llm()
    stream = llm.stream("hi", FOUR)
    assert len(list(stream)) == 4
    assert list(stream) == []
    stream.close()
    assembled.engine.check()


def test_a_batch_in_the_middle_of_a_stream_takes_nothing_from_it():
    llm, _ = make_llm()
    stream = llm.stream("hi", SamplingParams(temperature=0, max_tokens=6))
    first = next(stream).outputs[0].text
    assert llm.generate("abc", FOUR)[0].outputs[0].text == text_after(3, 4)
    rest = "".join(output.outputs[0].text for output in stream)
    assert first + rest == text_after(2, 6)


def test_enqueue_then_wait_keeps_the_order_of_the_calls():
    llm, _ = make_llm()
    llm.enqueue(["a", "bb"], [FOUR, SamplingParams(temperature=0, max_tokens=1)])
    llm.enqueue_chat([{"role": "user", "content": "c"}], FOUR)
    outputs = llm.wait_for_completion()
    assert [output.prompt for output in outputs] == ["a", "bb", "[user]c[assistant]"]
    assert llm.wait_for_completion() == []


def test_as_completed_gives_the_first_to_end_first():
    llm, assembled = make_llm()
    ids = llm.enqueue(["a", "b"], [FOUR, SamplingParams(temperature=0, max_tokens=1)])
    ended = llm.as_completed(ids)
    assert next(ended).request_id == ids[1]
    ended.close()
    assert not assembled.engine.has_unfinished()


def test_as_completed_refuses_an_id_that_is_not_open():
    llm, _ = make_llm()
    (known,) = llm.enqueue("a", FOUR)
    assert [output.request_id for output in llm.as_completed([known])] == [known]
    for request_id in (known, "nonsense"):
        with pytest.raises(InvalidRequest, match="no open request"):
            next(llm.as_completed([request_id]))


def test_a_stream_takes_one_conversation_and_drops_none_in_silence():
    llm, _ = make_llm()
    conversation = [{"role": "user", "content": "hi"}]
    with pytest.raises(InvalidRequest, match="a role and a content"):
        llm.stream_chat([conversation, conversation])
    with pytest.raises(InvalidRequest, match="list of dicts"):
        llm.stream_chat(conversation[0])


def test_a_failed_step_is_reported_on_its_requests_and_the_engine_goes_on():
    llm, _ = make_llm(fail_steps=[2])
    (output,) = llm.generate("hi", FOUR)
    assert output.outputs[0].finish_reason == "error"
    assert "failed on purpose" in output.error
    assert llm.generate("hi", FOUR)[0].error is None


class InterruptAt:
    """A gate that raises ``KeyboardInterrupt`` inside the n-th step."""

    def __init__(self, step: int) -> None:
        self.left = step

    def __call__(self) -> None:
        self.left -= 1
        if self.left == 0:
            import signal

            signal.raise_signal(signal.SIGINT)


def test_ctrl_c_ends_the_batch_between_two_steps_and_frees_everything():
    llm, assembled = make_llm(gate=InterruptAt(3))
    with pytest.raises(KeyboardInterrupt):
        llm.generate(["a", "b"], SamplingParams(temperature=0, max_tokens=9))
    assert not assembled.engine.has_unfinished()
    assembled.engine.check()  # the interrupted step was committed whole
    assert llm.generate("hi", FOUR)[0].outputs[0].text == text_after(2, 4)


def test_threads_share_one_llm():
    llm, assembled = make_llm()
    results: dict[int, list[str]] = {}

    def work(length: int) -> None:
        outputs = llm.generate(["x" * length] * 3, FOUR)
        results[length] = [output.outputs[0].text for output in outputs]

    threads = [threading.Thread(target=work, args=(length,)) for length in range(1, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {length: [text_after(length, 4)] * 3 for length in range(1, 6)}
    assembled.engine.check()


def test_close_is_idempotent_and_final():
    llm, assembled = make_llm()
    with llm:
        assert llm.model_name == "fake"
    llm.close()
    assert assembled.num_closes == 1
    with pytest.raises(EngineStopped, match="closed"):
        llm.generate("hi")


def test_vllms_other_arguments_pass_at_their_defaults_only():
    llm, _ = make_llm()
    llm.generate("hi", FOUR, use_tqdm=False, lora_request=None, priority=None)
    with pytest.raises(InvalidRequest, match="lora_request is not supported"):
        llm.generate("hi", FOUR, lora_request=object())
    with pytest.raises(TypeError, match="lora_reqest"):
        llm.generate("hi", FOUR, lora_reqest=None)


def test_several_samples_of_a_prompt_come_in_one_output():
    llm, assembled = make_llm()
    params = SamplingParams(n=3, max_tokens=4)
    (output,) = llm.generate("hi", params)
    assert [sample.index for sample in output.outputs] == [0, 1, 2]
    assert [sample.text for sample in output.outputs] == [text_after(2, 4)] * 3
    assembled.engine.check()


def test_a_stream_of_several_samples_gives_each_of_them_once():
    llm, _ = make_llm()
    texts = {0: "", 1: ""}
    for output in llm.stream("hi", SamplingParams(n=2, max_tokens=4)):
        for sample in output.outputs:
            texts[sample.index] += sample.text
    assert texts == {0: text_after(2, 4), 1: text_after(2, 4)}


def test_a_beam_search_gives_its_answers_by_score():
    """The fake worker's likeliest tokens are 0, 1, 2 with logprobs 0, -1/8, -2/8 everywhere."""
    llm, assembled = make_llm()
    params = BeamSearchParams(beam_width=3, max_tokens=3, length_penalty=0.0)
    first, second = llm.beam_search(["hi", "there"], params)
    assert first.outputs[0].token_ids == (0, 0, 0)
    assert [sample.score for sample in first.outputs] == [0.0, -0.125, -0.125]
    assert [sample.score for sample in second.outputs] == [0.0, -0.125, -0.125]
    assert [sample.finish_reason for sample in first.outputs] == ["length"] * 3
    assert not assembled.engine.has_unfinished()


def test_a_bad_beam_search_leaves_nothing():
    llm, assembled = make_llm()
    with pytest.raises(PromptTooLong):
        llm.beam_search(["ok", "x" * 64], BeamSearchParams())
    assert not assembled.engine.has_unfinished()
