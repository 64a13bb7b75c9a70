// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.faults;

import io.kvferry.spi.HostServices;
import io.kvferry.spi.Plugin;
import io.kvferry.spi.SpiVersion;
import io.kvferry.spi.config.ConnectorConfig;
import io.kvferry.spi.config.Option;
import io.kvferry.spi.config.OptionSchema;
import io.kvferry.spi.kv.Completion;
import io.kvferry.spi.kv.ConnectorCapabilities;
import io.kvferry.spi.kv.TransferId;

import java.util.function.BiFunction;
import java.util.function.BiPredicate;

/// What the scripted connectors of both families have in common: they are what a test says, and
/// their loads end when and how it says.
///
/// @param <S> the connector itself
public abstract sealed class Scripted<S extends Scripted<S>> implements Plugin
        permits ScriptedConnector, ScriptedEcConnector {
    private final String name;
    private final ConnectorCapabilities capabilities;
    final ScriptedTransfers transfers = new ScriptedTransfers();

    Scripted(String name, ConnectorCapabilities capabilities) {
        this.name = name;
        this.capabilities = capabilities;
    }

    abstract S self();

    /// How a load ends on a rank, asked once the load is ready.
    public S onLoad(BiFunction<TransferId, Integer, Completion.Result> answer) {
        transfers.onLoad(answer);
        return self();
    }

    /// Whether a load ends on a rank in this step; asked once per step until it says yes.
    public S loadReady(BiPredicate<TransferId, Integer> answer) {
        transfers.ready(answer);
        return self();
    }

    /// Puts a completion into the next report of its rank: of a hold or lease, or one that nobody
    /// expects.
    public void complete(TransferId id, int rank, Completion.Result result) {
        transfers.complete(id, rank, result);
    }

    @Override
    public String name() {
        return name;
    }

    @Override
    public String description() {
        return "answers what a test says";
    }

    @Override
    public SpiVersion.Range spiVersions() {
        return SpiVersion.Range.from(1, 0);
    }

    @Override
    public OptionSchema options() {
        return OptionSchema.of(
                Option.of("note", Option.Type.STRING, "ignored; tells two instances apart"));
    }

    public ConnectorCapabilities capabilities(ConnectorConfig config, HostServices host) {
        return capabilities;
    }
}
