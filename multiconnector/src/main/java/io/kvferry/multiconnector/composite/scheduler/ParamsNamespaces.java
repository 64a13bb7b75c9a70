// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.scheduler;

import io.kvferry.multiconnector.composite.wire.ChildNames;
import io.kvferry.spi.kv.TransferParams;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeSet;

/// `kv_transfer_params` of a composite. Two forms are read, also mixed, and either can be written:
///
/// - flat, as vLLM's: all keys at the top, seen by every child;
/// - namespaced: an object under a child's instance name, seen by that child alone, and stronger
///   than the flat keys.
final class ParamsNamespaces {
    private final ChildNames names;
    private final boolean writeNamespaced;

    ParamsNamespaces(ChildNames names, boolean writeNamespaced) {
        this.names = names;
        this.writeNamespaced = writeNamespaced;
    }

    /// Whether any child has a namespace in there; if not, every child may see the params as they
    /// are.
    boolean namespaced(TransferParams params) {
        for (var entry : params.values().entrySet()) {
            if (isNamespace(entry.getKey(), entry.getValue())) {
                return true;
            }
        }
        return false;
    }

    private boolean isNamespace(String key, Object value) {
        return value instanceof Map<?, ?> && names.indexOf(key) >= 0;
    }

    /// The params as one child sees them.
    TransferParams of(int child, TransferParams params) {
        var seen = new LinkedHashMap<String, Object>();
        params.values()
                .forEach((key, value) -> {
                    if (!isNamespace(key, value)) {
                        seen.put(key, value);
                    }
                });
        if (params.values().get(names.name(child)) instanceof Map<?, ?> own) {
            own.forEach((key, value) -> seen.put(String.valueOf(key), value));
        }
        return new TransferParams(seen);
    }

    /// The answer of the composite.
    ///
    /// @param clashes keys to which children gave different values. The first child's value stands
    ///   at the top, for readers of the flat form; all params of the children concerned are under
    ///   their names as well, so nothing is lost for a reader that knows namespaces.
    record Merged(TransferParams params, TreeSet<String> clashes) {}

    /// Merges what the children answered, by child; all of them have finished the request by now.
    Merged merge(TransferParams[] byChild) {
        var merged = new LinkedHashMap<String, Object>();
        var clashes = new TreeSet<String>();
        if (!writeNamespaced) {
            for (var params : byChild) {
                params.values()
                        .forEach((key, value) -> {
                            var first = merged.putIfAbsent(key, value);
                            if (first != null && !first.equals(value)) {
                                clashes.add(key);
                            }
                        });
            }
        }
        for (int child = 0; child < byChild.length; child++) {
            var params = byChild[child];
            boolean concerned = params.values().keySet().stream().anyMatch(clashes::contains);
            if (!params.values().isEmpty() && (writeNamespaced || concerned)) {
                merged.put(names.name(child), params.values());
            }
        }
        return new Merged(
                merged.isEmpty() ? TransferParams.EMPTY : new TransferParams(merged), clashes);
    }
}
