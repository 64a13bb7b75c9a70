// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.scheduler;

import io.kvferry.multiconnector.composite.LoadPolicy;
import io.kvferry.multiconnector.composite.scheduler.CompositeRequest.Stretch;
import io.kvferry.spi.kv.LookupResult;
import io.kvferry.spi.kv.LookupResult.Hit;
import io.kvferry.spi.kv.LookupResult.LoadMode;
import io.kvferry.spi.kv.LookupResult.Share;
import io.kvferry.spi.memory.KvCacheGroup;

import org.jspecify.annotations.Nullable;

import java.util.ArrayList;
import java.util.List;

/// Asks the children for hits and assigns loads to them according to the load policy.
///
/// Threading: scheduler thread only.
final class LoadPlanner {
    /// Asks one child. An exception or an illegal answer counts as a miss.
    interface Asker {
        LookupResult ask(int child, CompositeRequest request, int localTokens);
    }

    private final int children;
    private final LoadPolicy policy;

    /// Where one child may end and the next begin: at the end of a block of every group.
    private final int blockTokens;

    /// Children whose loads may run within the step that uses them.
    private final boolean[] staysSync;

    private final Asker asker;

    LoadPlanner(
            int children, LoadPolicy policy, int blockTokens, boolean[] staysSync, Asker asker) {
        this.children = children;
        this.policy = policy;
        this.blockTokens = blockTokens;
        this.staysSync = staysSync;
        this.asker = asker;
    }

    /// Tokens after which a block of every group ends.
    static int seam(List<KvCacheGroup> groups) {
        int common = 1;
        for (var group : groups) {
            common =
                    Math.multiplyExact(
                            common, group.blockTokens() / gcd(common, group.blockTokens()));
        }
        return common;
    }

    private static int gcd(int a, int b) {
        return b == 0 ? a : gcd(b, a % b);
    }

    /// Answers a lookup and leaves in `request` what it chose.
    LookupResult plan(CompositeRequest request, int localTokens) {
        request.chosen = List.of();
        return switch (policy) {
            case FIRST_HIT, LONGEST_HIT -> single(request, localTokens);
            case COMPOSE -> compose(request, localTokens);
        };
    }

    private LookupResult single(CompositeRequest request, int localTokens) {
        int winner = -1;
        Hit best = null;
        LookupResult.Pending pending = null;
        for (int child = 0; child < children; child++) {
            // Ask the remaining children too: a lookup tells a store what the engine already has
            // and need not save.
            var answer = ask(request, child, localTokens);
            switch (answer) {
                case LookupResult.Miss() -> {}
                case LookupResult.Pending wait -> {
                    if (policy == LoadPolicy.FIRST_HIT && best == null) {
                        return wait; // an earlier child may have it, so a later one cannot win yet
                    }
                    pending = sooner(pending, wait);
                }
                case Hit hit -> {
                    if (best == null
                            || (policy == LoadPolicy.LONGEST_HIT && hit.tokens() > best.tokens())) {
                        best = hit;
                        winner = child;
                    }
                }
            }
        }
        if (policy == LoadPolicy.LONGEST_HIT && pending != null) {
            return pending;
        }
        if (best == null) {
            return LookupResult.MISS;
        }
        request.chosen =
                List.of(
                        new Stretch(
                                winner,
                                localTokens,
                                localTokens + best.tokens(),
                                best.mode(),
                                best.shares()));
        var mode =
                best.mode() == LoadMode.SYNC && staysSync[winner] ? LoadMode.SYNC : LoadMode.ASYNC;
        return mode == best.mode() ? best : new Hit(best.tokens(), mode, best.shares());
    }

    private LookupResult compose(CompositeRequest request, int localTokens) {
        var stretches = new ArrayList<Stretch>();
        var used = new boolean[children];
        int at = localTokens;
        // A child may hold only a middle part of the prefix, so children without a hit are asked
        // again after each step forward. Each child is used at most once: it loads one range per
        // request.
        for (int child = 0; child < children; child++) {
            if (used[child]) {
                continue;
            }
            var answer = ask(request, child, at);
            if (answer instanceof LookupResult.Pending wait) {
                return wait;
            }
            if (answer instanceof Hit hit) {
                int end = at + hit.tokens();
                stretches.add(new Stretch(child, at, end, hit.mode(), hit.shares()));
                used[child] = true;
                at = end - end % blockTokens;
                if (at == stretches.getLast().from()) {
                    break; // less than a block: nobody can continue from within it
                }
                child = -1;
            }
        }
        if (stretches.isEmpty()) {
            return LookupResult.MISS;
        }
        return joined(request, stretches);
    }

    /// Cuts each stretch where the next begins, and adds up.
    private LookupResult joined(CompositeRequest request, List<Stretch> stretches) {
        var chosen = new ArrayList<Stretch>();
        var parts = new ArrayList<Share>();
        boolean sync = true;
        for (int i = 0; i < stretches.size(); i++) {
            var stretch = stretches.get(i);
            int end = i + 1 < stretches.size() ? stretches.get(i + 1).from() : stretch.to();
            // The next child must reach further than what it cuts off, or it is of no use.
            if (i + 1 < stretches.size() && stretches.get(i + 1).to() <= stretch.to()) {
                end = stretch.to();
                stretches.subList(i + 1, stretches.size()).clear();
            }
            var cut = stretch.within(stretch.from(), end);
            chosen.add(cut);
            parts.addAll(cut.shares());
            sync &= stretch.mode() == LoadMode.SYNC && staysSync[stretch.child()];
        }
        request.chosen = chosen;
        int tokens = chosen.getLast().to() - chosen.getFirst().from();
        return new Hit(tokens, sync ? LoadMode.SYNC : LoadMode.ASYNC, parts);
    }

    /// The shares of `count` tokens after the first `skip`.
    static List<Share> cut(List<Share> shares, int skip, int count) {
        var kept = new ArrayList<Share>();
        int at = 0;
        for (var share : shares) {
            int from = Math.max(at, skip);
            int to = Math.min(at + share.tokens(), skip + count);
            if (from < to) {
                kept.add(new Share(share.source(), share.tier(), to - from));
            }
            at += share.tokens();
        }
        return kept;
    }

    private LookupResult ask(CompositeRequest request, int child, int localTokens) {
        var answer =
                request.excluded(child)
                        ? LookupResult.MISS
                        : asker.ask(child, request, localTokens);
        request.answered(child, answer);
        return answer;
    }

    private static LookupResult.Pending sooner(
            LookupResult.@Nullable Pending one, LookupResult.Pending other) {
        return one == null || other.retryAfter().compareTo(one.retryAfter()) < 0 ? other : one;
    }

    /// A child that can load tokens `from` (to at most `to`) that another child failed to load.
    ///
    /// @param stretch whom to assign what; null when nobody can
    /// @param mayWait whether asking again may help
    record Substitute(@Nullable Stretch stretch, boolean mayWait) {}

    /// Looks for a child to fill a gap, in the order of preference.
    Substitute substitute(LoadGroup group, int from, int to) {
        Stretch best = null;
        boolean mayWait = false;
        for (int child = 0; child < children; child++) {
            if (group.request().excluded(child)) {
                continue;
            }
            if (group.busy(child)) {
                mayWait = true; // one load of a request at a time per child
                continue;
            }
            switch (asker.ask(child, group.request(), from)) {
                case LookupResult.Miss() -> {}
                case LookupResult.Pending _ -> mayWait = true;
                case Hit hit -> {
                    int end = Math.min(to, from + hit.tokens());
                    end = end == to ? end : end - end % blockTokens;
                    if (end > from
                            && (best == null
                                    || (policy != LoadPolicy.FIRST_HIT && end > best.to()))) {
                        best =
                                new Stretch(
                                        child,
                                        from,
                                        end,
                                        hit.mode(),
                                        cut(hit.shares(), 0, end - from));
                    }
                }
            }
            if (best != null && (policy == LoadPolicy.FIRST_HIT || best.to() == to)) {
                break;
            }
        }
        return new Substitute(best, mayWait);
    }
}
