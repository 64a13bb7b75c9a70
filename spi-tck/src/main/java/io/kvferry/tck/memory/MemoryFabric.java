// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.memory;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;
import io.kvferry.spi.transfer.PeerId;

import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;

/// The network between in-memory backends: who is there. Found by name, so that two agents of one
/// JVM meet by equal options only; it is gone when the last agent left.
///
/// Threading: any thread.
final class MemoryFabric {
    private static final Map<String, MemoryFabric> BY_NAME = new HashMap<>();

    private final String name;
    private final Map<PeerId, MemoryBackend> agents = new ConcurrentHashMap<>();

    private final AtomicInteger damage = new AtomicInteger();

    private MemoryFabric(String name) {
        this.name = name;
    }

    /// Adds an agent to the fabric of that name.
    static MemoryFabric join(String name, MemoryBackend agent) {
        synchronized (BY_NAME) {
            var fabric = BY_NAME.computeIfAbsent(name, MemoryFabric::new);
            if (fabric.agents.putIfAbsent(agent.self(), agent) != null) {
                throw new KvFerryException(
                        ErrorCode.BAD_CONFIG,
                        "fabric "
                                + name
                                + " has an agent "
                                + agent.self()
                                + " already; give each its own name");
            }
            return fabric;
        }
    }

    void leave(MemoryBackend agent) {
        synchronized (BY_NAME) {
            agents.remove(agent.self(), agent);
            if (agents.isEmpty()) {
                BY_NAME.remove(name, this);
            }
        }
    }

    /// The next piece that is moved on the fabric of that name arrives with a wrong byte.
    static void damage(String name) {
        synchronized (BY_NAME) {
            var fabric = BY_NAME.get(name);
            if (fabric != null) {
                fabric.damage.incrementAndGet();
            }
        }
    }

    boolean takeDamage() {
        return damage.get() > 0 && damage.getAndUpdate(left -> Math.max(0, left - 1)) > 0;
    }

    /// The agent of exactly that incarnation, if it is still there.
    Optional<MemoryBackend> find(PeerId peer) {
        return Optional.ofNullable(agents.get(peer));
    }
}
