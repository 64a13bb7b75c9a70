// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.directory;

import io.kvferry.backend.mooncake.store.StoreBatch;
import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.remote.RemoteStore;

import org.jspecify.annotations.Nullable;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/// Reads objects from the owners that have them. An owner that goes away meanwhile fails its keys
/// only, and only those that no other owner has.
///
/// Threading: any thread.
final class DirectoryGets {
    private static final int MISSING = StoreCode.OBJECT_NOT_FOUND.number();
    private static final int NOT_READY = StoreCode.REPLICA_IS_NOT_READY.number();
    private static final int INVALID = StoreCode.INVALID_PARAMS.number();

    private final Lookup lookup;
    private final OwnerBatches batches;
    private final KeyHints hints;
    private final Duration limit;

    /// @param limit after which nothing more is tried
    DirectoryGets(Lookup lookup, OwnerBatches batches, KeyHints hints, Duration limit) {
        this.lookup = lookup;
        this.batches = batches;
        this.hints = hints;
        this.limit = limit;
    }

    void get(List<Member> there, StoreBatch batch, long[] results) {
        long begin = System.nanoTime();
        List<String> keys = keys(batch);
        @Nullable Member[] at = lookup.hinted(there, keys);
        if (there.size() == 1) {
            Arrays.fill(at, there.getFirst());
        } else {
            resolve(there, keys, at, results);
        }
        batches.move(batch, i -> at[i], RemoteStore::get, results);
        if (there.size() == 1) {
            return;
        }
        boolean again = false;
        for (int i = 0; i < keys.size(); i++) {
            Member member = at[i];
            if (member != null && results[i] > 0) {
                hints.seen(keys.get(i), member.segment());
            } else if (member != null && results[i] != INVALID) {
                again = true;
                if (results[i] == MISSING) {
                    hints.missed(keys.get(i), member.segment());
                }
            }
        }
        if (again && System.nanoTime() - begin < limit.toNanos()) {
            getElsewhere(there, batch, keys, at, results);
        }
    }

    private static List<String> keys(StoreBatch batch) {
        var keys = new ArrayList<String>(batch.size());
        for (int i = 0; i < batch.size(); i++) {
            keys.add(batch.key(i));
        }
        return keys;
    }

    /// Finds the owners of keys without a known owner.
    private void resolve(
            List<Member> there, List<String> keys, @Nullable Member[] at, long[] results) {
        var unknown = new ArrayList<Integer>();
        for (int i = 0; i < at.length; i++) {
            if (at[i] == null) {
                unknown.add(i);
            }
        }
        if (unknown.isEmpty()) {
            return;
        }
        var found =
                lookup.find(there, unknown.stream().map(keys::get).toList(), Lookup.Kind.DESCRIBE);
        for (int i = 0; i < unknown.size(); i++) {
            int index = unknown.get(i);
            at[index] = found.at()[i];
            results[index] = found.codes()[i] == Lookup.ABSENT ? MISSING : found.codes()[i];
        }
    }

    private void getElsewhere(
            List<Member> there,
            StoreBatch batch,
            List<String> keys,
            @Nullable Member[] at,
            long[] results) {
        var failed = new ArrayList<Integer>();
        for (int i = 0; i < at.length; i++) {
            if (at[i] != null && results[i] < 0 && results[i] != INVALID) {
                failed.add(i);
            }
        }
        var not = failed.stream().map(i -> at[i]).toArray(Member[]::new);
        var found =
                lookup.find(
                        there, failed.stream().map(keys::get).toList(), Lookup.Kind.DESCRIBE, not);
        @Nullable Member[] other = new @Nullable Member[at.length];
        boolean any = false;
        for (int i = 0; i < failed.size(); i++) {
            int index = failed.get(i);
            other[index] = found.at()[i];
            any |= other[index] != null;
            if (results[index] == MISSING && found.codes()[i] == NOT_READY) {
                results[index] = NOT_READY;
            }
        }
        if (any) {
            batches.move(batch, i -> other[i], RemoteStore::get, results);
        }
    }
}
