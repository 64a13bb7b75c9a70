// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.cluster;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.ReplicaDescriptor;
import io.kvferry.backend.mooncake.store.Store;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.StoreUsage;
import io.kvferry.spi.Deadline;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Finding;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.doctor.Machine;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

/// One user of a Mooncake cluster. While the master is unreachable, calls return its error codes;
/// the library reconnects by itself.
///
/// Keys in the cluster are `kvferry:<16 hex digits of the identity>@<key>`. A user with another
/// identity neither finds nor removes an object, and removals keep the objects of others in the
/// cluster. The prefix separates names and is no protection, since Mooncake trusts everyone who
/// reaches it. A store of [#openPlain] shares keys and values with other users instead.
///
/// Values are copied through staging memory. So only the calling thread touches memory of an
/// engine, and a library call that does not return ends with RPC_TIMEOUT. The API has no buffers
/// per key, descriptors, groups, lookups without a lease, or duration of a soft pin (the master's
/// applies).
///
/// Threading: any thread.
public final class ClusterStore implements Store {
    private final ClusterCalls calls;
    private final ClusterPuts puts;
    private final ClusterGets gets;
    private final ClusterClient client;
    private final String prefix;
    private final Map<Long, Integer> registered = new HashMap<>();

    /// What is removed by [#removeAll], as a regular expression.
    private final String all;

    private ClusterStore(ClusterClient client, String prefix, String all, boolean sealed) {
        this.calls = new ClusterCalls(client, prefix, sealed);
        this.puts = new ClusterPuts(calls);
        this.gets = new ClusterGets(calls, key -> remove(key, true));
        this.client = client;
        this.prefix = prefix;
        this.all = all;
    }

    /// Opens the store, whether the master is there or not; waits for the first attempt as long as
    /// for a question.
    ///
    /// @throws io.kvferry.spi.KvFerryException [io.kvferry.spi.ErrorCode#UNAVAILABLE] without the
    ///   library
    public static ClusterStore open(ClusterConfig config, StoreIdentity identity) {
        var client = ClusterClient.use(config);
        client.awaitFirstTry(Deadline.in(config.askLimit()));
        String prefix = prefix(identity);
        return new ClusterStore(client, prefix, "^" + prefix + ".*$", true);
    }

    /// Opens the store for keys and values as other users of the cluster have them: keys as they
    /// are given, values without a checksum. Nothing tells values of another layout apart but their
    /// length, and nothing that could not be read is removed.
    ///
    /// @param start of the keys that [#removeAll] removes
    /// @throws KvFerryException as of [#open]; [ErrorCode#INCOMPATIBLE] for a tenant where the
    ///   library knows none: the keys would be those of all tenants
    public static ClusterStore openPlain(ClusterConfig config, String start) {
        var client = ClusterClient.use(config);
        if (!client.tellsTenantsApart()) {
            client.release();
            throw new KvFerryException(
                    ErrorCode.INCOMPATIBLE,
                    "tenant "
                            + config.tenant()
                            + " with keys as others write them: this release of Mooncake's library"
                            + " knows no tenants, and such keys name none");
        }
        client.awaitFirstTry(Deadline.in(config.askLimit()));
        return new ClusterStore(client, "", "^" + Expressions.literal(start) + ".*$", false);
    }

    /// What `kvferry doctor` says of the library.
    public static Finding diagnose() {
        return Machine.library(
                "Mooncake store (C)",
                ClusterConfig.LIBRARY_VARIABLE,
                "libmooncake_store.so",
                "MooncakeStoreConnector on a Mooncake cluster: " + StoreLibrary.HOW_TO_GET);
    }

    private static String prefix(StoreIdentity identity) {
        try {
            var digest = MessageDigest.getInstance("SHA-256");
            for (String part : List.of(identity.tenant(), identity.model(), identity.layout())) {
                byte[] utf8 = part.getBytes(StandardCharsets.UTF_8);
                digest.update((utf8.length + ":").getBytes(StandardCharsets.UTF_8));
                digest.update(utf8);
            }
            return "kvferry:" + HexFormat.of().formatHex(digest.digest(), 0, 8) + "@";
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException("every JDK has SHA-256", e);
        }
    }

    @Override
    public Set<Feature> features() {
        return calls.sealed() ? EnumSet.of(Feature.TENANTS) : EnumSet.noneOf(Feature.class);
    }

    @Override
    public int register(MemorySegment memory) {
        if (!memory.isNative()) {
            return StoreCode.INVALID_PARAMS.number();
        }
        synchronized (registered) {
            registered.merge(memory.address(), 1, Integer::sum);
        }
        return 0;
    }

    @Override
    public int unregister(MemorySegment memory) {
        synchronized (registered) {
            Integer count = registered.remove(memory.address());
            if (count == null) {
                return StoreCode.INVALID_PARAMS.number();
            }
            if (count > 1) {
                registered.put(memory.address(), count - 1);
            }
            return 0;
        }
    }

    @Override
    public void put(StoreBatch batch, PutOptions options, int[] results) {
        puts.put(batch, options, results);
    }

    @Override
    public void get(StoreBatch batch, long[] results) {
        gets.get(batch, results);
    }

    @Override
    public void exists(List<String> keys, boolean lease, int[] results) {
        int away = calls.away();
        if (away != 0) {
            Arrays.fill(results, 0, keys.size(), away);
            return;
        }
        var limit = Deadline.in(client.config().askLimit());
        for (int from = 0; from < keys.size(); ) {
            from = look(keys, from, results, limit);
        }
    }

    private int look(List<String> keys, int from, int[] results, Deadline limit) {
        CallThread thread = client.queries().take(limit);
        if (thread == null) {
            Arrays.fill(results, from, keys.size(), calls.noLane());
            return keys.size();
        }
        boolean mine = true;
        try {
            CallMemory memory = thread.memory();
            int next = from;
            for (; next < keys.size(); next++) {
                String key = keys.get(next);
                results[next] = StoreCode.RPC_TIMEOUT.number();
                if (ClusterCalls.isNoKey(key)) {
                    results[next] = 0;
                } else if (!memory.add(prefix + key, next)) {
                    if (memory.count() > 0) {
                        break;
                    }
                    results[next] = StoreCode.INVALID_PARAMS.number();
                }
            }
            if (memory.count() > 0) {
                long answer =
                        calls.call(
                                thread,
                                limit,
                                store -> {
                                    memory.presetInts(StoreCode.INTERNAL.number());
                                    return client.library().batchIsExist(store, memory);
                                });
                mine = answer != CallThread.ABANDONED;
                if (mine) {
                    for (int i = 0; i < memory.count(); i++) {
                        results[memory.position(i)] =
                                answer != 0 ? (int) answer : memory.intResult(i);
                    }
                }
            }
            return next;
        } finally {
            if (mine) {
                client.queries().give(thread);
            }
        }
    }

    @Override
    public void describe(List<String> keys, @Nullable ReplicaDescriptor[] found, int[] results) {
        Arrays.fill(found, 0, keys.size(), null);
        int away = calls.away();
        Arrays.fill(results, 0, keys.size(), away != 0 ? away : StoreCode.NOT_SUPPORTED.number());
    }

    /// A call that takes one string.
    private long ask(String text, Question question) {
        int away = calls.away();
        if (away != 0) {
            return away;
        }
        var limit = Deadline.in(client.config().askLimit());
        CallThread thread = client.queries().take(limit);
        if (thread == null) {
            return calls.noLane();
        }
        boolean mine = true;
        try {
            MemorySegment string = ClusterCalls.isNoKey(text) ? null : thread.memory().text(text);
            if (string == null) {
                return StoreCode.INVALID_PARAMS.number();
            }
            long answer = calls.call(thread, limit, store -> question.ask(store, string));
            mine = answer != CallThread.ABANDONED;
            return mine ? answer : StoreCode.RPC_TIMEOUT.number();
        } finally {
            if (mine) {
                client.queries().give(thread);
            }
        }
    }

    private interface Question {
        long ask(MemorySegment store, MemorySegment text);
    }

    @Override
    public long size(String key) {
        long bytes = ask(prefix + key, client.library()::getSize);
        if (bytes < 0 || !calls.sealed()) {
            return bytes;
        }
        return bytes < ValueTrailer.BYTES
                ? StoreCode.CHECKSUM_MISMATCH.number()
                : bytes - ValueTrailer.BYTES;
    }

    @Override
    public int remove(String key, boolean force) {
        return (int)
                ask(prefix + key, (store, text) -> client.library().remove(store, text, force));
    }

    /// INVALID_PARAMS also for expressions that the library would read otherwise than Java.
    @Override
    public long removeByRegex(String regex, boolean force) {
        if (!Expressions.areSame(regex)) {
            return StoreCode.INVALID_PARAMS.number();
        }
        return removeMatching("^" + prefix + "(?:" + regex + ")$", force);
    }

    @Override
    public long removeAll(boolean force) {
        return removeMatching(all, force);
    }

    private long removeMatching(String expression, boolean force) {
        return ask(expression, (store, text) -> client.library().removeByRegex(store, text, force));
    }

    @Override
    public String noRoom() {
        return puts.noRoom();
    }

    @Override
    public Removals removals() {
        return Removals.NONE;
    }

    @Override
    public Optional<StoreUsage> usage() {
        return Optional.empty();
    }

    @Override
    public int healthCheck() {
        int away = calls.away();
        return away != 0 ? away : client.health();
    }

    @Override
    public void close() {
        calls.close();
    }
}
