// SPDX-License-Identifier: Apache-2.0
// What every scene must say.
#pragma once

namespace gpushare::conformance {

inline constexpr char kExpected[] = R"(
legacy stream waits for a blocking stream: ab
blocking stream waits for the legacy stream: ab
legacy stream and a non-blocking stream pass each other: ba ba
legacy stream by its name: ab ab ab
legacy stream between two blocking streams: abc
blocking streams pass each other: ba
own default stream is a blocking stream: ab ab ba
own default streams of two threads: ba ab
query of the legacy stream: blocking held ERROR_NOT_READY non-blocking held SUCCESS then SUCCESS
query of the legacy stream while another thread's own is held: own SUCCESS legacy ERROR_NOT_READY then SUCCESS
legacy stream waits for host functions: abcd
copy to the host without a stream: value 7 woc
fill and copy on the device without a stream: still 00 ra then 21
copy from pageable memory: value 5

order within a stream: abcdef copied 1
query of a stream: new SUCCESS held ERROR_NOT_READY then SUCCESS
wait for the context: oas
host function blocks its stream only: held ERROR_NOT_READY ba
stream destroyed while it has work: ab
flags of streams: 0 1 0 0 0
priorities: range 0 to -5, streams 0 -5 -5 0 aaaa

event across streams: ab
work after the recording of an event: abc
query of an event: new SUCCESS SUCCESS held ERROR_NOT_READY then SUCCESS
wait for an event that is recorded later: ba
event recorded again: SUCCESS ab
event of the legacy stream: ab
legacy stream waits for an event: ab
event destroyed while awaited: ab
time between events: held ERROR_NOT_READY then SUCCESS forward timeless ERROR_INVALID_HANDLE fresh ERROR_INVALID_HANDLE

launches that are refused: no blocks ERROR_INVALID_VALUE no threads ERROR_INVALID_VALUE 2048 threads ERROR_INVALID_VALUE no kernel ERROR_INVALID_HANDLE
memory that is refused: of 0 bytes ERROR_INVALID_VALUE freed at 0 SUCCESS copy from 0 ERROR_INVALID_VALUE copy of nothing SUCCESS host flags ERROR_INVALID_VALUE
streams and events that are refused: stream flags ERROR_INVALID_VALUE event flags ERROR_INVALID_VALUE query ERROR_INVALID_HANDLE record ERROR_INVALID_HANDLE wait ERROR_INVALID_HANDLE no function ERROR_INVALID_VALUE
devices and modules that are refused: device ERROR_INVALID_DEVICE flags of init ERROR_INVALID_VALUE no image ERROR_INVALID_VALUE

sizes of partitions: of 132: 8 8 116 used 8
streams in two partitions pass each other: ba ba
legacy stream and a stream in a partition pass each other: ba ba
events across partitions: abcd
flags of a stream in a partition: flags 1

capture with a fork and a join: none active none none nodes 3 -abcabc
capture of copies and fills: nodes 3 before 0 after 4 3
legacy stream while a blocking stream captures: ERROR_STREAM_CAPTURE_IMPLICIT invalidated ERROR_STREAM_CAPTURE_INVALIDATED no graph none
status of the legacy stream while a blocking stream captures: ERROR_STREAM_CAPTURE_IMPLICIT SUCCESS graph none a
legacy stream while a non-blocking stream captures: active SUCCESS graph b
capture of the legacy stream: ERROR_STREAM_CAPTURE_UNSUPPORTED none
capture begun twice: ERROR_ILLEGAL_STATE SUCCESS graph again ERROR_ILLEGAL_STATE no graph
waits for a capturing stream: synchronize ERROR_STREAM_CAPTURE_UNSUPPORTED ERROR_STREAM_CAPTURE_INVALIDATED no graph query ERROR_STREAM_CAPTURE_UNSUPPORTED ERROR_STREAM_CAPTURE_INVALIDATED no graph
event of a capture: query ERROR_CAPTURED_EVENT wait ERROR_INVALID_VALUE ERROR_STREAM_CAPTURE_INVALIDATED no graph
capture with a stream that is not joined: ERROR_STREAM_CAPTURE_UNJOINED no graph none none
capture ended in another stream: other ERROR_STREAM_CAPTURE_UNMATCHED no graph first ERROR_STREAM_CAPTURE_INVALIDATED no graph
capture waits for an event from outside: ERROR_STREAM_CAPTURE_ISOLATION ERROR_STREAM_CAPTURE_INVALIDATED no graph
two captures wait for each other: ERROR_STREAM_CAPTURE_MERGE ERROR_STREAM_CAPTURE_INVALIDATED no graph ERROR_STREAM_CAPTURE_INVALIDATED no graph
capture ended by another thread: local, other thread: ERROR_STREAM_CAPTURE_WRONG_THREAD no graph own thread: ERROR_ILLEGAL_STATE no graph relaxed, other thread: SUCCESS graph
calls that may wait while a stream captures: global, other thread: ERROR_STREAM_CAPTURE_UNSUPPORTED ERROR_STREAM_CAPTURE_INVALIDATED no graph local, other thread: SUCCESS own: ERROR_STREAM_CAPTURE_UNSUPPORTED ERROR_STREAM_CAPTURE_INVALIDATED no graph relaxed, own: SUCCESS SUCCESS graph global, thread relaxed: SUCCESS was 2 SUCCESS graph
allocation while a stream captures: global ERROR_STREAM_CAPTURE_UNSUPPORTED ERROR_STREAM_CAPTURE_INVALIDATED no graph relaxed SUCCESS SUCCESS graph
wait for the context while a stream captures: ERROR_STREAM_CAPTURE_UNSUPPORTED ERROR_STREAM_CAPTURE_INVALIDATED no graph
wait for the context while two streams capture: ERROR_STREAM_CAPTURE_UNSUPPORTED invalidated invalidated ERROR_STREAM_CAPTURE_INVALIDATED no graph then SUCCESS ERROR_STREAM_CAPTURE_UNSUPPORTED invalidated invalidated ERROR_STREAM_CAPTURE_INVALIDATED no graph then SUCCESS
wait for the context while another thread captures: ERROR_STREAM_CAPTURE_UNSUPPORTED ERROR_STREAM_CAPTURE_INVALIDATED no graph
wait for the legacy stream while a stream captures: ERROR_STREAM_CAPTURE_IMPLICIT ERROR_STREAM_CAPTURE_INVALIDATED no graph ERROR_STREAM_CAPTURE_UNSUPPORTED ERROR_STREAM_CAPTURE_INVALIDATED no graph relaxed SUCCESS SUCCESS graph
other streams while one captures: ERROR_STREAM_CAPTURE_UNSUPPORTED ERROR_STREAM_CAPTURE_INVALIDATED no graph b
stream destroyed while it captures: SUCCESS
stream destroyed after it has joined a capture: SUCCESS active SUCCESS graph
refused launch while a stream captures: ERROR_INVALID_VALUE invalidated ERROR_STREAM_CAPTURE_INVALIDATED no graph
streams and events made while one captures: stream SUCCESS SUCCESS graph event SUCCESS SUCCESS graph recorded SUCCESS SUCCESS graph waited for SUCCESS SUCCESS graph event gone SUCCESS SUCCESS graph stream gone SUCCESS SUCCESS graph
copies that wait while a stream captures: SUCCESS SUCCESS graph SUCCESS SUCCESS graph 5

graph with every kind of node: 0 2 5 3 1 0 nodes 7 roots 1 abc 7 6
graph with branches: ab 2 2
launches of a graph in line: aghbc agh gha
exec launched twice: aggb
two execs of a graph: gbga
graph changed after its instantiation: a nodes 2
exec updated by a graph: same SUCCESS 0 abcd longer ERROR_GRAPH_EXEC_UPDATE_FAILURE 2 other kind ERROR_GRAPH_EXEC_UPDATE_FAILURE 3 cd
exec with a node's parameters set: ab
exec of a captured graph with a node's parameters set: SUCCESS 0 abcbdb
clone of a graph: another ERROR_INVALID_VALUE a
graph within a graph: abcd
events in a graph: ERROR_NOT_READY abc SUCCESS
graph without nodes: a
launch of a graph while its stream captures: ERROR_STREAM_CAPTURE_UNSUPPORTED invalidated again ERROR_STREAM_CAPTURE_UNSUPPORTED ERROR_STREAM_CAPTURE_INVALIDATED no graph b
calls for graphs while a stream captures: set SUCCESS active update SUCCESS 0 active launch elsewhere SUCCESS active instantiate ERROR_STREAM_CAPTURE_UNSUPPORTED invalidated upload SUCCESS active b
wait for the context behind a graph: SUCCESS 0 a-b-c-
memory and kernels given up behind a graph: a-b-c-d-
graphs that are refused: flags ERROR_INVALID_VALUE dependency of another graph ERROR_INVALID_VALUE no exec ERROR_INVALID_VALUE

granularity of memory: minimum 2097152 recommended 2097152
memory mapped and used: 5 5 1 9
memory side by side: 3 3
memory mapped twice: 8 8 9 8
memory released before it is unmapped: 4 4
memory mapped again elsewhere: 6 6
access to memory: not mapped ERROR_INVALID_VALUE mapped 0 writable 3 none 0
mappings that are refused: half a page reserved ERROR_INVALID_VALUE half a page made ERROR_INVALID_VALUE more than there is mapped ERROR_NOT_SUPPORTED offset ERROR_NOT_SUPPORTED between pages ERROR_INVALID_VALUE nothing mapped ERROR_INVALID_VALUE access to what is not mapped ERROR_INVALID_VALUE unmapped what is not mapped SUCCESS mapped over ERROR_INVALID_VALUE half unmapped ERROR_INVALID_VALUE freed while mapped ERROR_INVALID_VALUE freed by cuMemFree ERROR_INVALID_VALUE half freed ERROR_INVALID_VALUE released nothing ERROR_INVALID_VALUE
)";

}  // namespace gpushare::conformance
