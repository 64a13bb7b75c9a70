// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.wire;

import io.kvferry.spi.kv.TransferId;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/// Names of the children, and the translation of transfer ids at the composite's boundary: outward,
/// the child's label is put in front of the id's path; inward, it is removed. The label is the
/// child's name, plus a number once the child has been reopened, because the new half may reuse ids
/// of its predecessor.
public final class ChildNames {
    private final List<String> names;
    private final List<String> labels;
    private final Map<String, Integer> byName = new HashMap<>();
    private final Map<String, Integer> byLabel = new HashMap<>();

    public ChildNames(List<String> names) {
        this.names = List.copyOf(names);
        this.labels = new ArrayList<>(names);
        for (int i = 0; i < names.size(); i++) {
            byName.put(names.get(i), i);
        }
        byLabel.putAll(byName);
    }

    /// The child was opened again.
    ///
    /// @param generation 1 for the first opening
    public void renew(int child, int generation) {
        byLabel.remove(labels.get(child));
        var label = names.get(child) + "#" + generation; // a name has no '#'
        labels.set(child, label);
        byLabel.put(label, child);
    }

    public int count() {
        return names.size();
    }

    public String name(int child) {
        return names.get(child);
    }

    /// The id of a child's transfer as the engine sees it.
    public TransferId outward(int child, TransferId id) {
        var label = labels.get(child);
        return id.forChild(id.child().isEmpty() ? label : label + "/" + id.child());
    }

    /// The child of a transfer; -1 for one of the composite itself, or of a child before it was
    /// opened again.
    public int childOf(TransferId id) {
        var path = id.child();
        int slash = path.indexOf('/');
        return byLabel.getOrDefault(slash < 0 ? path : path.substring(0, slash), -1);
    }

    /// The id as the child that it belongs to knows it.
    public TransferId inward(TransferId id) {
        var path = id.child();
        int slash = path.indexOf('/');
        return id.forChild(slash < 0 ? "" : path.substring(slash + 1));
    }

    /// The index of a child by name, -1 when there is none.
    public int indexOf(String name) {
        return byName.getOrDefault(name, -1);
    }
}
