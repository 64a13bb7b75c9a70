// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.directory;

import io.kvferry.backend.mooncake.store.PutOptions;
import io.kvferry.backend.mooncake.store.ReplicaDescriptor;
import io.kvferry.backend.mooncake.store.Store;
import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.StoreIdentity;
import io.kvferry.backend.mooncake.store.StoreUsage;
import io.kvferry.backend.mooncake.store.master.MasterView;
import io.kvferry.backend.mooncake.store.remote.RemoteStore;
import io.kvferry.backend.mooncake.store.remote.RemoteStoreConfig;

import org.jspecify.annotations.Nullable;

import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.EnumSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.function.ToLongFunction;

/// One user of a store that is spread over several owners, as listed by a master. Each object is at
/// one owner and has one replica, whatever the options say. If two users put an object at the same
/// time, two owners may get it.
///
/// While the master does not answer, the known owners stay in use. While no owner answers, every
/// call fails at once with RPC_FAIL. The objects of an owner that does not answer are misses.
///
/// A removal is sent to every listed owner, including those that are unreachable or slow. It
/// reports a failure if one of them did not answer, or if an owner that this user once knew is
/// neither listed nor listed with a later epoch: such an owner may return with its objects, unless
/// the master has forgotten it. The objects of the other owners are removed in any case, and the
/// removal can be repeated.
///
/// Threading: any thread.
public final class DirectoryStore implements Store {
    private static final int MISSING = StoreCode.OBJECT_NOT_FOUND.number();

    private final FanOut fanOut = new FanOut();
    private final KeyHints hints;
    private final Members members;
    private final Lookup lookup;
    private final DirectoryGets gets;
    private final DirectoryPuts puts;
    private @Nullable MasterView view;
    private volatile boolean closed;

    private DirectoryStore(RemoteStoreConfig master, StoreIdentity identity, boolean announces) {
        this.hints = KeyHints.use(master.address() + " " + identity);
        this.members = new Members(master, identity, announces, fanOut, hints);
        this.lookup = new Lookup(fanOut, hints);
        var batches = new OwnerBatches(fanOut);
        this.gets = new DirectoryGets(lookup, batches, hints, master.moveLimit());
        this.puts = new DirectoryPuts(lookup, batches, hints, master.moveLimit());
    }

    /// Opens the store whether master and owners are there or not.
    ///
    /// @param master its address, and how owners are reached
    /// @param announces whether this user, of those in the process, logs who goes and comes back
    /// @throws io.kvferry.spi.KvFerryException [io.kvferry.spi.ErrorCode#BAD_CONFIG] when the
    ///   master is on another host and there is no secret
    public static DirectoryStore open(
            RemoteStoreConfig master, StoreIdentity identity, boolean announces) {
        master.checkSecret();
        var store = new DirectoryStore(master, identity, announces);
        boolean done = false;
        try {
            store.view = MasterView.open(master, announces, store.members);
            done = true;
            return store;
        } finally {
            if (!done) {
                store.close();
            }
        }
    }

    @Override
    public Set<Feature> features() {
        return EnumSet.complementOf(EnumSet.of(Feature.IN_PROCESS));
    }

    @Override
    public int register(MemorySegment memory) {
        return members.engines().register(memory);
    }

    @Override
    public int unregister(MemorySegment memory) {
        return members.engines().unregister(memory);
    }

    /// What is answered while no owner can be asked.
    private int away() {
        return closed
                ? StoreCode.UNAVAILABLE_IN_CURRENT_STATUS.number()
                : StoreCode.RPC_FAIL.number();
    }

    private List<Member> there() {
        return closed ? List.of() : members.there();
    }

    /// How many owners can be asked now.
    int owners() {
        return there().size();
    }

    @Override
    public void put(StoreBatch batch, PutOptions options, int[] results) {
        List<Member> there = there();
        if (there.isEmpty()) {
            Arrays.fill(results, 0, batch.size(), away());
        } else {
            puts.put(there, batch, options, results);
        }
    }

    @Override
    public void get(StoreBatch batch, long[] results) {
        List<Member> there = there();
        if (there.isEmpty()) {
            Arrays.fill(results, 0, batch.size(), away());
        } else {
            gets.get(there, batch, results);
        }
    }

    @Override
    public void exists(List<String> keys, boolean lease, int[] results) {
        List<Member> there = there();
        if (there.isEmpty()) {
            Arrays.fill(results, 0, keys.size(), away());
            return;
        }
        var kind = lease ? Lookup.Kind.EXISTS_WITH_LEASE : Lookup.Kind.EXISTS;
        var found = lookup.find(there, keys, kind);
        System.arraycopy(found.codes(), 0, results, 0, keys.size());
    }

    @Override
    public void describe(List<String> keys, @Nullable ReplicaDescriptor[] found, int[] results) {
        Arrays.fill(found, 0, keys.size(), null);
        List<Member> there = there();
        if (there.isEmpty()) {
            Arrays.fill(results, 0, keys.size(), away());
            return;
        }
        var answer = lookup.find(there, keys, Lookup.Kind.DESCRIBE);
        for (int i = 0; i < keys.size(); i++) {
            found[i] = answer.replicas()[i];
            int code = answer.codes()[i];
            results[i] = code == Lookup.FOUND ? 0 : code == Lookup.ABSENT ? MISSING : code;
        }
    }

    @Override
    public long size(String key) {
        var found = new @Nullable ReplicaDescriptor[1];
        var results = new int[1];
        describe(List.of(key), found, results);
        ReplicaDescriptor replica = found[0];
        return replica == null ? results[0] : replica.length();
    }

    /// Removes the key at all owners. If one of them keeps it or does not answer, that code is
    /// returned.
    @Override
    public int remove(String key, boolean force) {
        List<Long> answers = ask(store -> store.remove(key, force));
        for (StoreCode kept : List.of(StoreCode.OBJECT_HAS_LEASE, StoreCode.REPLICA_IS_NOT_READY)) {
            if (answers.contains((long) kept.number())) {
                return kept.number();
            }
        }
        return (int)
                answers.stream()
                        .mapToLong(Long::longValue)
                        .filter(code -> code != 0 && code != MISSING)
                        .min()
                        .orElse(answers.contains(0L) ? 0 : MISSING);
    }

    @Override
    public long removeByRegex(String regex, boolean force) {
        return sum(ask(store -> store.removeByRegex(regex, force)));
    }

    @Override
    public long removeAll(boolean force) {
        return sum(ask(store -> store.removeAll(force)));
    }

    /// Of all; the worst code when one of them failed.
    private static long sum(List<Long> answers) {
        long worst = answers.stream().mapToLong(Long::longValue).min().orElseThrow();
        return worst < 0 ? worst : answers.stream().mapToLong(Long::longValue).sum();
    }

    /// Asks all listed owners, reachable or not. A known owner that cannot be asked adds a failure
    /// to the answers.
    ///
    /// @return at least one answer
    private List<Long> ask(ToLongFunction<RemoteStore> question) {
        List<Long> answers = Collections.synchronizedList(new ArrayList<>());
        var known = members.known();
        if (closed || known.members().isEmpty() || !known.complete()) {
            answers.add((long) away());
        }
        fanOut.run(
                known.members().stream()
                        .<Runnable>map(member ->
                                () -> {
                                    long answer = member.call(question);
                                    member.answered(answer);
                                    answers.add(answer);
                                })
                        .toList());
        return answers;
    }

    @Override
    public String noRoom() {
        var why = new String[] {""};
        puts.full()
                .ifPresent(member ->
                        member.call(store -> {
                            why[0] = store.noRoom();
                            return 0;
                        }));
        return puts.full().isPresent() && why[0].isEmpty() ? "no owner has room" : why[0];
    }

    @Override
    public Removals removals() {
        return members.removals();
    }

    @Override
    public Optional<StoreUsage> usage() {
        return members.there().stream()
                .map(member -> member.quick().usage())
                .flatMap(Optional::stream)
                .reduce(StoreUsage::plus);
    }

    @Override
    public int healthCheck() {
        return there().isEmpty() ? away() : 0;
    }

    @Override
    public void close() {
        boolean first;
        synchronized (this) {
            first = !closed;
            closed = true;
        }
        MasterView last = view;
        if (first) {
            if (last != null) {
                last.close();
            }
            members.close();
            fanOut.close();
            hints.release();
        }
    }
}
