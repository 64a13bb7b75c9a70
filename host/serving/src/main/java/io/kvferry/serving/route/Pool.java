// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import org.jspecify.annotations.Nullable;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;

/// The instances of one role, and which of them gets a request.
///
/// Threading: any thread.
final class Pool {
    /// How far above the average the load of a prefix's instance may be.
    private static final double MAX_IMBALANCE = 1.25;

    private volatile List<Upstream> members;
    private final RoutingPolicy policy;
    private final AtomicInteger turn = new AtomicInteger();

    Pool(List<Upstream> members, RoutingPolicy policy) {
        this.members = members.stream().distinct().toList();
        this.policy = policy;
    }

    List<Upstream> members() {
        return members;
    }

    /// One more instance, in the place of another one if that is not null.
    synchronized void replace(@Nullable Upstream before, Upstream after) {
        var others = new ArrayList<>(members);
        others.remove(before);
        others.add(after);
        members = List.copyOf(others);
    }

    /// Removes an instance; its requests continue.
    synchronized void remove(Upstream gone) {
        members = members.stream().filter(member -> member != gone).toList();
    }

    /// Whether `one` is a member and no other member works.
    boolean isDownButFor(Upstream one) {
        var now = members;
        return now.contains(one)
                && now.stream().noneMatch(member -> member != one && member.isUp());
    }

    long upCount() {
        return members.stream().filter(Upstream::isUp).count();
    }

    /// An instance that works and was not tried yet, admitted: the caller sends it a request, or
    /// calls [Upstream#undecided].
    ///
    /// @param prompt for the policies that look at it
    Optional<Upstream> pick(Prompt prompt, Set<Upstream> tried) {
        var now = members; // which may change meanwhile
        if (now.isEmpty()) {
            return Optional.empty();
        }
        var order =
                now.stream()
                        .filter(member -> member.isUp() && !tried.contains(member))
                        .sorted(order(now, prompt))
                        .toList();
        // A half-open instance is tried by one request while others work.
        for (var member : order) {
            if (member.admit(false)) {
                return Optional.of(member);
            }
        }
        return order.stream().filter(member -> member.admit(true)).findFirst();
    }

    private Comparator<Upstream> order(List<Upstream> members, Prompt prompt) {
        int first = Math.floorMod(turn.getAndIncrement(), members.size());
        Comparator<Upstream> inTurn =
                Comparator.comparingInt(
                        member -> Math.floorMod(members.indexOf(member) - first, members.size()));
        return switch (policy) {
            case ROUND_ROBIN -> inTurn;
            case LEAST_LOADED -> byLoad(members).thenComparing(inTurn);
            case PREFIX ->
                    overloadedLast(members).thenComparing(byPrefix(members, prompt.beginning()));
            case KV_EVENTS ->
                    overloadedLast(members)
                            .thenComparing(byCached(members, prompt))
                            .thenComparing(byPrefix(members, prompt.beginning()));
        };
    }

    /// A snapshot, so that the order holds while it is sorted by.
    private static Comparator<Upstream> byLoad(List<Upstream> members) {
        var loads = members.stream().mapToInt(member -> member.inFlight.get()).toArray();
        return Comparator.comparingInt(member -> loads[members.indexOf(member)]);
    }

    private static Comparator<Upstream> overloadedLast(List<Upstream> members) {
        var loads = members.stream().mapToInt(member -> member.inFlight.get()).toArray();
        double limit = 1 + MAX_IMBALANCE * Arrays.stream(loads).average().orElse(0);
        return Comparator.comparing(member -> loads[members.indexOf(member)] > limit);
    }

    /// The longest cached prefix first.
    private static Comparator<Upstream> byCached(List<Upstream> members, Prompt prompt) {
        var cached =
                members.stream()
                        .mapToInt(member -> member.cached.longest(prompt.tokens(), prompt.salt()))
                        .toArray();
        return Comparator.comparingInt((Upstream member) -> cached[members.indexOf(member)])
                .reversed();
    }

    private static Comparator<Upstream> byPrefix(List<Upstream> members, String prefix) {
        var weights = members.stream().mapToLong(member -> weight(prefix, member)).toArray();
        return Comparator.comparingLong((Upstream member) -> weights[members.indexOf(member)])
                .reversed();
    }

    /// Rendezvous hashing: the instance with the greatest weight. When an instance is added or
    /// removed, only its prefixes move.
    private static long weight(String prefix, Upstream member) {
        try {
            var digest = MessageDigest.getInstance("SHA-256");
            digest.update(member.base.toString().getBytes(StandardCharsets.UTF_8));
            digest.update((byte) 0);
            return ByteBuffer.wrap(digest.digest(prefix.getBytes(StandardCharsets.UTF_8)))
                    .getLong();
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException("every JDK has SHA-256", e);
        }
    }
}
