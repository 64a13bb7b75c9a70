// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.agent;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import java.util.Collection;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;

/// The open backends of an agent by name, in the order of their opening.
///
/// Threading: immutable.
final class Slots {
    private final Map<String, BackendSlot> byName;

    Slots(Map<String, BackendSlot> byName) {
        this.byName = Collections.unmodifiableMap(new LinkedHashMap<>(byName));
    }

    Collection<BackendSlot> all() {
        return byName.values();
    }

    Set<String> names() {
        return byName.keySet();
    }

    boolean has(String name) {
        return byName.containsKey(name);
    }

    /// @throws KvFerryException NOT_FOUND when it is not open here
    BackendSlot get(String name) {
        var slot = byName.get(name);
        if (slot == null) {
            throw new KvFerryException(
                    ErrorCode.NOT_FOUND,
                    "no backend " + name + " is open in this agent; open: " + byName.keySet());
        }
        return slot;
    }
}
