// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import io.kvferry.spi.kv.TransferId;

import java.util.HashMap;
import java.util.List;
import java.util.Map;

/// The names of the children and the two directions in which transfer ids cross the border of the
/// composite: outward an id gets the child's name in front of its path, inward it loses it.
final class ChildNames {
    private final List<String> names;
    private final Map<String, Integer> index = new HashMap<>();

    ChildNames(List<String> names) {
        this.names = List.copyOf(names);
        for (int i = 0; i < names.size(); i++) {
            index.put(names.get(i), i);
        }
    }

    int count() {
        return names.size();
    }

    String name(int child) {
        return names.get(child);
    }

    /// The id of a child's transfer as the engine sees it.
    TransferId outward(int child, TransferId id) {
        var name = names.get(child);
        return id.forChild(id.child().isEmpty() ? name : name + "/" + id.child());
    }

    /// Whose transfer this is, -1 for one of the composite itself.
    int childOf(TransferId id) {
        var path = id.child();
        int slash = path.indexOf('/');
        return index.getOrDefault(slash < 0 ? path : path.substring(0, slash), -1);
    }

    /// The id as the child that it belongs to knows it.
    TransferId inward(TransferId id) {
        var path = id.child();
        int slash = path.indexOf('/');
        return id.forChild(slash < 0 ? "" : path.substring(slash + 1));
    }

    /// The index of a child by name, -1 when there is none.
    int indexOf(String name) {
        return index.getOrDefault(name, -1);
    }
}
