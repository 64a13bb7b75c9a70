// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.store.directory;

import io.kvferry.backend.mooncake.store.ReplicaDescriptor;
import io.kvferry.backend.mooncake.store.StoreCode;
import io.kvferry.backend.mooncake.store.remote.RemoteStore;

import org.jspecify.annotations.Nullable;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/// Finds the owners of keys. Each key is asked for at the owner that had it last; those of which
/// that is not known are asked for at all owners at the same time, and so are, afterwards, those
/// that were not where they were.
///
/// Threading: any thread.
final class Lookup {
    /// As [Found#codes] of a key that an owner has.
    static final int FOUND = 1;

    /// As [Found#codes] of a key that no owner has.
    static final int ABSENT = 0;

    private static final int MISSING = StoreCode.OBJECT_NOT_FOUND.number();
    private static final int NOT_READY = StoreCode.REPLICA_IS_NOT_READY.number();
    private static final int KEYS_AT_A_TIME = 8192;

    private final FanOut fanOut;
    private final KeyHints hints;

    /// What is asked.
    enum Kind {
        EXISTS,
        EXISTS_WITH_LEASE,
        /// With a lease, and tells objects that are being written.
        DESCRIBE
    }

    /// @param at owner per key; null where it was not found
    /// @param codes per key FOUND, ABSENT, REPLICA_IS_NOT_READY, or why no owner could be asked
    /// @param replicas per key, for DESCRIBE
    @SuppressWarnings("ArrayRecordComponent") // columnar on purpose; never compared
    record Found(@Nullable Member[] at, int[] codes, @Nullable ReplicaDescriptor[] replicas) {}

    /// What one owner answered for some of the keys.
    @SuppressWarnings("ArrayRecordComponent") // columnar on purpose; never compared
    private record Part(
            Member member, int[] indices, int[] codes, @Nullable ReplicaDescriptor[] replicas) {}

    Lookup(FanOut fanOut, KeyHints hints) {
        this.fanOut = fanOut;
        this.hints = hints;
    }

    /// @param there owners that are asked, at least one
    Found find(List<Member> there, List<String> keys, Kind kind) {
        return find(there, keys, kind, new @Nullable Member[keys.size()]);
    }

    /// @param not per key an owner that is not asked
    Found find(List<Member> there, List<String> keys, Kind kind, @Nullable Member[] not) {
        int count = keys.size();
        var found =
                new Found(
                        new @Nullable Member[count],
                        new int[count],
                        new @Nullable ReplicaDescriptor[count]);
        Arrays.fill(found.codes, MISSING); // until an owner has answered
        @Nullable Member[] hinted = hinted(there, keys);
        ask(
                there,
                keys,
                kind,
                found,
                (index, member) ->
                        member != not[index]
                                && (hinted[index] == null
                                        || hinted[index] == member
                                        || hinted[index] == not[index]));
        ask(
                there,
                keys,
                kind,
                found,
                (index, member) ->
                        found.at[index] == null
                                && hinted[index] != null
                                && hinted[index] != not[index]
                                && hinted[index] != member
                                && member != not[index]);
        for (int i = 0; i < count; i++) {
            Member member = found.at[i];
            if (member != null && member != hinted[i]) {
                hints.seen(keys.get(i), member.segment());
            } else if (found.codes[i] == MISSING) {
                found.codes[i] = ABSENT;
            }
        }
        return found;
    }

    /// The owners that had the keys last, of those that are there.
    @Nullable Member[] hinted(List<Member> there, List<String> keys) {
        @Nullable Member[] hinted = new @Nullable Member[keys.size()];
        if (there.size() == 1) {
            return hinted;
        }
        @Nullable String[] segments = hints.find(keys);
        for (int i = 0; i < hinted.length; i++) {
            String segment = segments[i];
            for (int m = 0; segment != null && m < there.size(); m++) {
                if (segment.equals(there.get(m).segment())) {
                    hinted[i] = there.get(m);
                }
            }
        }
        return hinted;
    }

    @FunctionalInterface
    private interface Asks {
        boolean test(int index, Member member);
    }

    private void ask(List<Member> there, List<String> keys, Kind kind, Found found, Asks asks) {
        var parts = new ArrayList<Part>();
        for (Member member : there) {
            var indices = new int[keys.size()];
            int count = 0;
            for (int i = 0; i < indices.length; i++) {
                if (asks.test(i, member)) {
                    indices[count++] = i;
                }
            }
            for (int from = 0; from < count; from += KEYS_AT_A_TIME) {
                int to = Math.min(count, from + KEYS_AT_A_TIME);
                parts.add(
                        new Part(
                                member,
                                Arrays.copyOfRange(indices, from, to),
                                new int[to - from],
                                new @Nullable ReplicaDescriptor[to - from]));
            }
        }
        fanOut.run(parts.stream().<Runnable>map(part -> () -> ask(part, keys, kind)).toList());
        parts.forEach(part -> merge(part, keys, found));
    }

    private static void ask(Part part, List<String> keys, Kind kind) {
        boolean all = part.indices.length == keys.size();
        List<String> asked = all ? keys : Arrays.stream(part.indices).mapToObj(keys::get).toList();
        long code = part.member.call(store -> ask(store, asked, kind, part));
        if (code != 0) {
            Arrays.fill(part.codes, (int) code);
        }
        for (int answer : part.codes) {
            part.member.answered(answer);
        }
    }

    private static long ask(RemoteStore store, List<String> keys, Kind kind, Part part) {
        if (kind != Kind.DESCRIBE) {
            store.exists(keys, kind == Kind.EXISTS_WITH_LEASE, part.codes);
            return 0;
        }
        store.describe(keys, part.replicas, part.codes);
        for (int i = 0; i < part.codes.length; i++) {
            part.codes[i] =
                    part.codes[i] == 0 ? FOUND : part.codes[i] == MISSING ? ABSENT : part.codes[i];
        }
        return 0;
    }

    /// Merges the answers of several owners for a key. The precedence is: present, being written,
    /// absent, and last the reason why an owner did not answer.
    private void merge(Part part, List<String> keys, Found found) {
        for (int i = 0; i < part.indices.length; i++) {
            int index = part.indices[i];
            int code = part.codes[i];
            if (code == FOUND && found.at[index] == null) {
                found.at[index] = part.member;
                found.replicas[index] = part.replicas[i];
                found.codes[index] = FOUND;
            } else if (found.at[index] == null && says(code) > says(found.codes[index])) {
                found.codes[index] = code;
            }
            if (code == ABSENT) {
                hints.missed(keys.get(index), part.member.segment());
            }
        }
    }

    private static int says(int code) {
        if (code == MISSING) {
            return 0; // nothing so far
        }
        return code == NOT_READY ? 3 : code == ABSENT ? 2 : 1;
    }
}
