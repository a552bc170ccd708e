"""CSV formats against real files: what their publishers and the papers say of them."""

from __future__ import annotations

import gzip
import math
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from engine.errors import WorkbenchError
from tests.traces.readers.help import AZURE, DATA, refusal, rows_of, write
from traces.readers import open_trace, read_workload
from traces.rows import ReadOptions


def test_azure_2023(tmp_path: Path) -> None:
    """CRLF, 7 digits, naive dates; the first rows are quoted in the data set's own description."""
    path = DATA / "azure2023_conv_2000.csv"
    workload = read_workload(path)
    assert workload.origin is not None and workload.report is not None
    assert (workload.origin.format, workload.origin.unit, workload.report.read) == ("azure", "date", 2000)
    first, second, third = workload.specs[:3]
    assert (first.arrival, first.prompt_len, first.output_len, first.where) == (0.0, 374, 44, f"{path}:2")
    assert (second.arrival, second.prompt_len, second.output_len) == (4.314579, 396, 109)
    assert (third.arrival, third.prompt_len, third.output_len) == (4.541877, 879, 55)
    assert "rebased from 2023-11-16 18:15:46.68059" in workload.origin.line


def test_azure_2023_is_what_vidur_made_of_it() -> None:
    """Vidur's splitwise_conv is the same trace in seconds from its start."""
    azure = read_workload(DATA / "azure2023_conv_2000.csv").specs[:300]
    vidur = read_workload(DATA / "vidur_splitwise_conv_300.csv").specs
    assert [(spec.prompt_len, spec.output_len) for spec in azure] == [(s.prompt_len, s.output_len) for s in vidur]
    assert all(abs(a.arrival - v.arrival) < 1e-6 for a, v in zip(azure, vidur, strict=True))


def test_azure_2024_with_zones_and_without_fractions(tmp_path: Path) -> None:
    """The week of May 10 to 16: from 00:00:00.009930 to 23:59:59.929501."""
    workload = read_workload(DATA / "azure2024_code_10rows.csv")
    assert len(workload.specs) == 10 and workload.specs[-1].arrival == 7 * 86_400 - 0.070499 - 0.00993
    assert (workload.specs[0].prompt_len, workload.specs[0].output_len) == (2162, 5)
    rows, _ = rows_of(write(tmp_path / "a", AZURE, "2024-05-10 00:00:00+00:00,5,6", "2024-05-10 00:00:00.5+00:00,5,6"))
    assert rows[1][1] - rows[0][1] == 500_000_000


def test_azure_2025_with_a_column_in_between() -> None:
    workload = read_workload(DATA / "azure2025_multimodal_10rows.csv")
    first, second = workload.specs[:2]
    assert (first.prompt_len, first.output_len) == (770, 491)
    assert (second.arrival, second.prompt_len, second.output_len) == (5.55, 949, 126)
    assert any("NumImages is not used" in note for note in workload.notes)


def test_inference_perf_is_azure_without_a_final_newline() -> None:
    workload = read_workload(DATA / "inference_perf_azure_trace_example.csv")
    assert len(workload.specs) == 20 and workload.origin is not None and workload.origin.format == "azure"
    assert (workload.specs[-1].prompt_len, workload.specs[-1].output_len) == (1353, 142)


def test_burstgpt_of_6_columns() -> None:
    workload = read_workload(DATA / "burstgpt_1_head29.csv")
    assert workload.report is not None and (workload.report.kept, workload.report.failed) == (29, 1)
    assert [(s.arrival, s.prompt_len, s.output_len) for s in workload.specs[:3]] == [
        (0.0, 472, 18), (40.0, 1087, 230), (113.0, 417, 276)
    ]  # fmt: skip
    assert sum(spec.failed for spec in workload.specs) == 1
    assert len(read_workload(DATA / "burstgpt_1_head29.csv", ReadOptions(failed="drop")).specs) == 28
    sent = read_workload(DATA / "burstgpt_1_head29.csv", ReadOptions(failed="min1")).specs
    assert len(sent) == 29 and not any(spec.failed for spec in sent)
    assert min(min(spec.prompt_len or 0, spec.output_len or 0) for spec in sent) == 1


@pytest.mark.parametrize(
    ("asked", "clients"),
    [
        ("model", {"ChatGPT": 2, "GPT-4": 1}),
        ("Model", {"ChatGPT": 2, "GPT-4": 1}),
        ("log_type", {"Conversation log": 2, "API log": 1}),
        ("session", {"11": 2, "default": 1}),
        (None, {"default": 3}),
    ],
)
def test_burstgpt_of_8_columns(tmp_path: Path, asked: str | None, clients: dict[str, int]) -> None:
    """Kind 1. Session and elapsed time stand at positions 1 and 2; API calls have no session; floats of seconds."""
    path = write(
        tmp_path / "BurstGPT_3.csv",
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type",
        "19440110.0,11,4.2,ChatGPT,100,20,120,Conversation log",
        "19440110.5,,1.5,GPT-4,50,0,50,API log",
        "19440112.0,11,4.2,ChatGPT,140,30,170,Conversation log",
    )
    workload = read_workload(path, ReadOptions(client_from=asked))
    assert [spec.arrival for spec in workload.specs] == [0.0, 0.5, 2.0]
    assert [spec.session for spec in workload.specs] == ["11", None, "11"]
    assert [spec.failed for spec in workload.specs] == [False, True, False]
    assert Counter(spec.client for spec in workload.specs) == clients
    assert workload.origin is not None and workload.origin.line.endswith("rebased from 19440110")


def test_a_client_column_that_is_not_there() -> None:
    said = refusal(DATA / "burstgpt_1_head29.csv", client_from="tenant")
    assert "--client-from: there is no column 'tenant'; there are Timestamp, Model" in said


def test_vidur_lengths_without_arrivals() -> None:
    workload = read_workload(DATA / "vidur_arxiv_summarization_100.csv")
    assert workload.origin is not None and workload.origin.line.startswith("no arrival times")
    assert {spec.arrival for spec in workload.specs} == {0.0}
    assert [(spec.prompt_len, spec.output_len) for spec in workload.specs[:2]] == [(3772, 54), (2015, 156)]


def test_vidur_with_dates_and_floats(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a",
        "arrival_time,num_prefill_tokens,num_decode_tokens",
        "2023-11-16 18:00:00.25,10.0,3.0",
        "2023-11-16 18:00:01,11,4",
    )
    assert [(s.arrival, s.prompt_len, s.output_len) for s in read_workload(path).specs] == [(0.0, 10, 3), (0.75, 11, 4)]


def test_splitwise_sim(tmp_path: Path) -> None:
    specs = read_workload(DATA / "splitwise_sim_test_trace.csv").specs
    assert [(s.id, s.arrival, s.prompt_len, s.output_len) for s in specs] == [
        ("0", 0.0, 4096, 32), ("1", 2.0, 2048, 8), ("2", 3.0, 2048, 16)
    ]  # fmt: skip
    other = (DATA / "splitwise_sim_test_trace.csv").read_bytes() + b"3,1,0,5,1,9,9\n"
    path = tmp_path / "a"
    path.write_bytes(other)
    rows, report = rows_of(path)
    assert len(rows) == 3 and report.dropped == {"no request": 1}


def test_vtc_arena_has_the_published_figures() -> None:
    """27 clients, 1,500 requests in 10 minutes; lengths, rate, CV and Jain's index as the reference table has them."""
    workload = read_workload(DATA / "vtc_arena27_fcfs_1500.csv.gz")
    prompts = np.array([spec.prompt_len for spec in workload.specs])
    outputs = np.array([spec.output_len for spec in workload.specs])
    assert len(workload.specs) == 1500 and len({spec.client for spec in workload.specs}) == 27
    assert np.round(np.percentile(prompts, [50, 90, 95, 99])).tolist() == [40, 432, 653, 902]
    assert np.round(np.percentile(outputs, [50, 90, 95, 99])).tolist() == [211, 513, 513, 785]
    assert (round(prompts.mean()), prompts.max(), round(outputs.mean()), outputs.max()) == (136, 1021, 256, 977)
    gaps = np.diff([spec.arrival for spec in workload.specs])
    assert workload.origin is not None and f"{workload.origin.rate:.2f}" == "2.50"
    assert f"{gaps.std() / gaps.mean():.2f}" == "1.10"
    counts = np.array(list(Counter(spec.client for spec in workload.specs).values()))
    assert f"{counts.sum() ** 2 / (len(counts) * (counts**2).sum()):.2f}" == "0.35"


@pytest.mark.parametrize("given", ["deepseek-r1_chunk-9-trace.csv", "deepseek-r1_chunk-9-dataset.json", "."])
def test_servegen_makes_the_same_requests_from_either_file_or_the_folder(tmp_path: Path, given: str) -> None:
    """144 windows of 600 s, two of them busy: 0.4/s and 0.1733/s, that is 240 and 104 requests on average. Lengths
    of those windows are those of the dataset from 43,200 s on, where one is 60 tokens in 18 of 100."""
    for name in ("deepseek-r1_chunk-9-trace.csv", "deepseek-r1_chunk-9-dataset.json"):
        shutil.copy(DATA / name, tmp_path / name)
    rows, report = rows_of(tmp_path / given)
    assert rows == rows_of(DATA / "deepseek-r1_chunk-9-trace.csv")[0]
    assert {line for line, *_ in rows} == {92, 93} and report.read == len(rows)
    assert all(54_600e9 <= t < 55_800e9 for _, t, *_ in rows)
    second = [row for row in rows if row[0] == 93]
    assert 104 - 4 * math.sqrt(104) * 1.1 < len(second) < 104 + 4 * math.sqrt(104) * 1.1  # a renewal process of CV 1.1
    sixty = sum(prompt == 60 for _, _, prompt, *_ in rows) / len(rows)
    assert abs(sixty - 0.1787) < 4 * math.sqrt(0.1787 * 0.8213 / len(rows))
    assert min(output for *_, output, _, _ in rows) >= 81
    assert {more["client"] for *_, more in rows} == {"deepseek-r1_chunk-9"}
    assert report.notes == ["requests were drawn from ServeGen's rates and lengths with the seed 0"]


def test_servegen_rates_hold_over_many_windows(tmp_path: Path) -> None:
    """Means and CVs of the gaps, whatever scale the file says: 2/s for 100 windows with Gamma gaps of shape 0.25."""
    write(tmp_path / "c-trace.csv", *(f"{600 * at},2,2,Gamma,0.25,7" for at in range(100)))
    write(tmp_path / "c-dataset.json", '{"0": {"input_tokens": "{8: 0.5, 16: 0.5}", "output_tokens": "{4: 1.0}"}}')
    rows, _ = rows_of(tmp_path / "c-trace.csv")
    times = np.array([t for _, t, *_ in rows]) / 1e9
    gaps = np.diff(times)
    assert abs(len(rows) / 60_000 - 2) < 0.1
    assert abs(gaps.std() / gaps.mean() - 2) < 0.15
    assert rows_of(tmp_path / "c-trace.csv")[0] == rows


def test_servegen_with_half_of_a_client_or_code_in_it(tmp_path: Path) -> None:
    trace = tmp_path / "a-trace.csv"
    shutil.copy(DATA / "deepseek-r1_chunk-9-trace.csv", trace)
    assert "there is no a-dataset.json" in refusal(trace)
    proof = tmp_path / "it ran"
    evil = f"__import__('os').mkdir('{proof}')"
    write(tmp_path / "a-dataset.json", f'{{"0": {{"input_tokens": "{evil}", "output_tokens": "{{1: 1.0}}"}}}}')
    assert "is not a dict of length to probability" in refusal(trace)
    assert not proof.exists()
    write(tmp_path / "a-dataset.json", "{}")
    assert "no ServeGen dataset" in refusal(trace) or "holds no length" in refusal(trace)


BLIS_HEADER = "trace_version: 2\ntime_unit: us\nmode: real\nworkload_seed: 7\nserver:\n  model: m\n"
BLIS_ROWS = (
    "request_id,client_id,tenant_id,slo_class,session_id,round_index,prefix_group,prefix_length,streaming,input_tokens,"
    "output_tokens,text_tokens,image_tokens,audio_tokens,video_tokens,reason_ratio,model,deadline_us,slo_target_us,"
    "server_input_tokens,arrival_time_us,send_time_us,first_chunk_time_us,last_chunk_time_us,num_chunks,status,"
    "error_message,finish_reason",
    "0,alice,t1,critical,,0,sys,100,true,50,20,50,0,0,0,0,,0,500000,0,1000000,1000000,0,0,0,ok,,stop",
    'r1,,t2,batch,s9,3,sys,100,false,7,5,7,0,0,0,0,,3500000,0,0,1500000,1500000,0,0,0,error,"a, b",',
    "2,bob,t1,batch,,0,,0,false,0,5,0,0,0,0,0,,0,0,0,1250000,1500000,0,0,0,ok,,",
)


def write_blis(tmp_path: Path, header: str = BLIS_HEADER) -> tuple[Path, Path]:
    yaml, rows = tmp_path / "t.yaml", tmp_path / "t.csv"
    yaml.write_text(header)
    return yaml, write(rows, *BLIS_ROWS)


def test_blis_in_two_files_and_in_one(tmp_path: Path) -> None:
    """`input_tokens` is the part after the group's shared prefix, as its writer has it; kind 10: zero input failed;
    kind 28: a deadline of 0 is none."""
    yaml, rows = write_blis(tmp_path)
    one = tmp_path / "one"
    one.write_text("---\n" + BLIS_HEADER + "---\n" + rows.read_text())
    commented = tmp_path / "commented"
    commented.write_text("".join(f"# {line}\n" for line in BLIS_HEADER.splitlines()) + rows.read_text())
    for path in (rows, yaml, one, commented):
        workload = read_workload(path)
        assert workload.origin is not None and (workload.origin.format, workload.origin.unit) == ("blis", "us")
        first, third, second = workload.specs
        assert path in (one, commented) or first.where == f"{rows}:2"
        assert (first.id, first.arrival, first.prompt_len, first.output_len) == ("0", 0.0, 150, 20)
        assert (first.client, first.deadline, first.session, first.failed) == ("alice", 0.5, None, False)
        assert (second.id, second.arrival, second.prompt_len, second.client) == ("r1", 0.5, 107, "t2")
        assert (second.session, second.turn, second.failed, second.deadline) == ("s9", 3, True, 2.0)
        assert first.prefix_ids == second.prefix_ids != () and first.prefix_lens == (100,)
        assert (third.failed, third.prefix_ids, third.deadline) == (True, (), None)


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (BLIS_HEADER + "surprise: 1\n", "the header's key 'surprise' is unknown; known are created_at"),
        (BLIS_HEADER.replace("2", "9", 1), "trace_version must be 2 or 3, not 9"),
        (BLIS_HEADER.replace("us", "weeks"), "time_unit is none of us"),
        ("trace_version: [\n", "not YAML"),
        ("- trace_version\n", "not a YAML mapping"),
    ],
)
def test_blis_headers_are_read_strictly(tmp_path: Path, header: str, said: str) -> None:
    _, rows = write_blis(tmp_path, header)
    assert said in refusal(rows)


def test_blis_halves(tmp_path: Path) -> None:
    yaml, rows = write_blis(tmp_path)
    yaml.unlink()
    assert any("taken as microseconds" in note for note in read_workload(rows).notes)
    yaml.write_text(BLIS_HEADER)
    rows.unlink()
    assert "is a BLIS header without rows" in refusal(yaml)


def test_tracelab_rounds_follow_each_other_and_share_prefixes(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.csv",
        "id,input_len,output_len,arrival_time,round_idx,tool_wait_after_ms,prefix_len",
        "s1,128,20,0,0,1500,0",
        "s2,64,5,100,0,0,0",
        "s1,300,10,2000,1,0,128",
    )
    workload = read_workload(path)
    first, other, second = workload.specs
    assert (first.session, first.turn, first.after, second.turn) == ("s1", 0, None, 1)
    assert (second.after, second.delay, other.after) == (first.id, 1.5, None)
    assert second.prefix_ids[:2] == first.prefix_ids and len(second.prefix_ids) == 5 and second.prefix_lens == (64,)
    assert not set(other.prefix_ids) & {*first.prefix_ids, *second.prefix_ids}


def test_any_csv_with_names_people_use(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a",
        "User;Start_ms;Prompt Tokens;Completion Tokens;Note",
        "ann;1500;10;20;x",
        "bob;1750.5;11;21;y",
    )
    workload = read_workload(path)
    assert workload.origin is not None and (workload.origin.format, workload.origin.unit) == ("csv", "ms")
    assert [(s.client, s.arrival, s.prompt_len, s.output_len) for s in workload.specs] == [
        ("ann", 0.0, 10, 20), ("bob", 0.2505, 11, 21)
    ]  # fmt: skip
    assert any("columns that are not used: Note" in note for note in workload.notes)


def test_a_unit_is_never_guessed_silently(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "timestamp,input_length,output_length", "1000,1,1", "3000,1,1")
    seconds = read_workload(path)
    assert seconds.specs[1].arrival == 2000.0 and any("taken as seconds" in note for note in seconds.notes)
    milliseconds = read_workload(path, ReadOptions(time_unit="ms"))
    assert milliseconds.specs[1].arrival == 2.0
    assert milliseconds.origin is not None and milliseconds.origin.line.startswith("time unit: ms (csv), span 2s")


def test_formats_are_chosen_by_name_when_asked(tmp_path: Path) -> None:
    path = DATA / "azure2023_conv_2000.csv"
    assert open_trace(path, ReadOptions(format="azure")).format == "azure"
    assert "did you mean 'azure'?" in refusal(path, format="Azur")
    assert "there are azure, burstgpt" in refusal(path, format="qqqq")
    assert "--format mooncake reads JSON lines or JSON; this file is CSV with the columns TIMESTAMP" in refusal(
        path, format="mooncake"
    )
    assert "burstgpt needs the column 'Request tokens'" in refusal(path, format="burstgpt")
    with pytest.raises(WorkbenchError, match="--failed: 'no' is none of keep, drop, min1"):
        open_trace(path, ReadOptions(failed="no"))
    with pytest.raises(WorkbenchError, match="--short-ids"):
        open_trace(path, ReadOptions(short_ids="no"))


def test_packed_csv(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(gzip.compress((DATA / "azure2023_conv_2000.csv").read_bytes()))
    assert len(rows_of(path)[0]) == 2000


@pytest.mark.parametrize(
    ("header", "row", "format"),
    [
        ("timestamp,contexttokens,generatedtokens", "2023-11-16 18:15:46.6805900,374,44", "azure"),
        ("GENERATEDTOKENS,TIMESTAMP,CONTEXTTOKENS", "44,2023-11-16T18:15:46Z,374", "azure"),
        (
            "timestamp,model,request_tokens,response_tokens,total_tokens,log_type",
            "5,GPT-4,374,44,418,API log",
            "burstgpt",
        ),
        ("Arrived_At,Num_Prefill_Tokens,Num_Decode_Tokens", "0.5,374,44", "vidur"),
        ("ARRIVAL_TIMESTAMP,PROMPT_SIZE,TOKEN_SIZE", "0.5,374,44", "splitwise-sim"),
        ("Req_Time,Client,Prompt_Len,Output_Len", "0.5,a,374,44", "vtc"),
    ],
)
def test_columns_in_another_case(tmp_path: Path, header: str, row: str, format: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"{header}\n{row}\n")
    trace = open_trace(path)
    (chunk,) = trace.chunks()
    assert trace.format == format and not trace.report.notes
    assert (chunk.prompt_len.tolist(), chunk.output_len.tolist()) == ([374], [44])


@pytest.mark.parametrize("quoted", [False, True])
def test_comments_before_the_header(tmp_path: Path, quoted: bool) -> None:
    path = tmp_path / "a.csv"
    row = '"2023-11-16 18:15:46",374,44' if quoted else "2023-11-16 18:15:46,374,44"
    path.write_text(f"# a trace, of a day\n\n# 2023\nTIMESTAMP,ContextTokens,GeneratedTokens\n{row}\n# end, of, it\n")
    trace = open_trace(path)
    (chunk,) = trace.chunks()
    assert chunk.line.tolist() == [5] and chunk.prompt_len.tolist() == [374]
    assert (trace.report.read, trace.report.kept) == (2, 1)


def test_a_header_behind_a_comment_sign(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("# 2 rows\n# id,arrival,prompt_len,output_len\na,0,10,5\nb,1,11,6\n")
    rows, report = rows_of(path)
    assert [(row[0], row[2], row[5]) for row in rows] == [(3, 10, {"id": "a"}), (4, 11, {"id": "b"})]
    assert report.read == 2


def test_lines_that_end_with_cr_alone_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"TIMESTAMP,ContextTokens,GeneratedTokens\r2023-11-16 18:15:46,374,44\r")
    assert "ends its lines with CR alone" in refusal(path)


def test_numbers_in_place_of_azure_dates_are_seconds(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n0.5,374,44\n1.5,374,44\n")
    trace = open_trace(path)
    (chunk,) = trace.chunks()
    assert trace.unit == "s" and chunk.t_ns.tolist() == [500_000_000, 1_500_000_000]


def test_a_table_of_our_own_is_read_with_all_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(
        "id,arrival,prompt_len,output_len,client,priority,session,turn,after,delay,deadline\n"
        "a,0,10,5,,-1,s,0,,,2.5\nb,1,10,5,c,,s,1,a,0.25,\nc,2,10,5,,x,,,,,\n"
    )
    trace = open_trace(path)
    (chunk,) = trace.chunks()
    assert chunk.more == [
        {"id": "a", "session": "s", "priority": -1, "turn": 0, "deadline": 2.5},
        {"id": "b", "client": "c", "session": "s", "turn": 1, "after": "a", "delay": 0.25},
    ]
    assert dict(trace.report.dropped) == {"bad priority": 1}
