// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

import io.kvferry.multiconnector.ComposingHost;
import io.kvferry.multiconnector.ConnectorFactory;
import io.kvferry.multiconnector.composite.CompositeCapabilities.Member;
import io.kvferry.multiconnector.composite.scheduler.SchedulerChildren;
import io.kvferry.multiconnector.composite.worker.WorkerChildren;
import io.kvferry.multiconnector.config.Family;
import io.kvferry.spi.EngineInfo;
import io.kvferry.spi.HostServices;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.SchedulerContext;
import io.kvferry.spi.kv.SchedulerHalf;
import io.kvferry.spi.kv.WorkerContext;
import io.kvferry.spi.kv.WorkerHalf;

import java.util.ArrayList;
import java.util.List;
import java.util.function.Function;

/// A resolved configuration of a composite: the selected children and their capabilities.
///
/// @param <S> how a child is selected
/// @param family KV or encoder cache
record Composition<S>(
        Family family, CompositeOptions options, List<S> children, List<Member> members) {
    /// How a child is selected.
    interface Selector<S> {
        S select(ConnectorFactory factory, String instance, ConnectorConfig config);
    }

    static <S> Composition<S> of(
            Family family,
            String instance,
            ConnectorConfig config,
            HostServices host,
            Selector<S> selector,
            Function<S, ConnectorCapabilities> capabilities) {
        var factory = ComposingHost.connectors(instance, host);
        var values =
                CompositeOptions.SCHEMA.read(
                        family.key("connector_extra_config") + " of " + instance, config.extra());
        var options = CompositeOptions.read(family, instance, config, values);
        var children = new ArrayList<S>();
        var members = new ArrayList<Member>();
        for (var child : options.children()) {
            var selected = selector.select(factory, instance + "/" + child.name(), child.config());
            children.add(selected);
            members.add(
                    new Member(
                            child.name(),
                            capabilities.apply(selected),
                            child.config().role().produces()));
        }
        return new Composition<>(family, options, List.copyOf(children), List.copyOf(members));
    }

    ConnectorCapabilities capabilities(String instance) {
        return CompositeCapabilities.of(instance, members, staysSync());
    }

    /// By child. Loaded encoder items are never saved again, so encoder-cache loads may always be
    /// sync.
    boolean[] staysSync() {
        var stays = new boolean[members.size()];
        for (int i = 0; i < stays.length; i++) {
            stays[i] = family == Family.EC || CompositeCapabilities.staysSync(members, i);
        }
        return stays;
    }

    /// Opens a half of a child for an incarnation of the engine.
    interface Opener<S, H> {
        H open(S child, EngineInfo engine);
    }

    /// Opens the scheduler halves of all children, or none.
    <H extends SchedulerHalf> SchedulerChildren<H> openSchedulers(
            SchedulerContext context, Opener<S, H> opener) {
        var engine = context.engine();
        var halves = openAll(child -> opener.open(child, engine));
        var all = new ArrayList<SchedulerChildren.Member<H>>();
        for (int i = 0; i < halves.size(); i++) {
            var member = members.get(i);
            all.add(
                    new SchedulerChildren.Member<>(
                            member.name(), halves.get(i), member.capabilities()));
        }
        return new SchedulerChildren<>(
                context.instance(),
                all,
                context.engine().cache().groups(),
                context.host(),
                engine.worldSize(),
                options,
                (child, incarnation) ->
                        opener.open(children.get(child), again(engine, incarnation)));
    }

    /// Opens the worker halves of all children on one rank, or none.
    <H extends WorkerHalf> WorkerChildren<H> openWorkers(
            WorkerContext context, Opener<S, H> opener) {
        var engine = context.engine();
        return new WorkerChildren<>(
                context.instance(),
                context.rank().rank(),
                members,
                openAll(child -> opener.open(child, engine)),
                (child, incarnation) ->
                        opener.open(children.get(child), again(engine, incarnation)),
                context.host()::wake,
                options.closeGrace());
    }

    private static EngineInfo again(EngineInfo engine, long incarnation) {
        return new EngineInfo(
                engine.modelName(),
                engine.namespace(),
                engine.cache(),
                engine.worldSize(),
                engine.dataParallelRank(),
                incarnation);
    }

    /// When one cannot be opened, those before it are closed again.
    private <H extends AutoCloseable> List<H> openAll(Function<S, H> open) {
        var opened = new ArrayList<H>();
        try {
            for (var child : children) {
                opened.add(open.apply(child));
            }
            return opened;
        } catch (RuntimeException | Error e) {
            for (var half : opened.reversed()) {
                try {
                    half.close();
                } catch (Throwable suppressed) { // every half must get its turn
                    e.addSuppressed(suppressed);
                }
            }
            throw e;
        }
    }
}
