// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.faults;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/// What was called on recorded plugins, in order.
///
/// Threading: any thread.
public final class CallLog {
    /// One call, written down when it began.
    ///
    /// @param part whose method: `provider`, `scheduler`, `worker 0`, `backend`, ...
    /// @param outcome the value or exception as text; empty while the call runs and for void
    public record Call(
            String part, String method, List<Object> arguments, String thread, String outcome) {
        @Override
        public String toString() {
            return part + "." + method;
        }
    }

    private final List<Call> calls = Collections.synchronizedList(new ArrayList<>());

    int begin(Call call) {
        synchronized (calls) {
            calls.add(call);
            return calls.size() - 1;
        }
    }

    void end(int index, String outcome) {
        synchronized (calls) {
            var call = calls.get(index);
            calls.set(
                    index, new Call(call.part, call.method, call.arguments, call.thread, outcome));
        }
    }

    public List<Call> calls() {
        synchronized (calls) {
            return List.copyOf(calls);
        }
    }

    /// The calls on one part, as method names.
    public List<String> methods(String part) {
        return calls().stream().filter(call -> call.part.equals(part)).map(Call::method).toList();
    }

    /// Calls of one method on one part.
    public List<Call> of(String part, String method) {
        return calls().stream()
                .filter(call -> call.part.equals(part) && call.method.equals(method))
                .toList();
    }

    public void clear() {
        calls.clear();
    }
}
