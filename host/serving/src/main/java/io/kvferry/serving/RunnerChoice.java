// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving;

import io.kvferry.engine.model.ModelRunnerProvider;
import io.kvferry.engine.model.ModelSource;
import io.kvferry.multiconnector.discovery.PluginCatalog;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.KvFerryException;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.ArrayList;
import java.util.List;

/// Chooses the model runner for a model: the configured one, or with [#AUTO] the first runner that
/// accepts the model, in order of speed.
public final class RunnerChoice {
    /// The name that leaves the choice to kvferry.
    public static final String AUTO = "auto";

    private static final Logger LOG = LoggerFactory.getLogger(RunnerChoice.class);
    private static final List<String> ORDER = List.of("jlama", "llama");

    private RunnerChoice() {}

    /// @throws KvFerryException INCOMPATIBLE when none takes the model, with the reason of each;
    ///   BAD_CONFIG without a model
    public static ModelRunnerProvider of(PluginCatalog plugins, EngineSettings settings) {
        if (!settings.runner().equals(AUTO)) {
            return AssembledEngine.runner(plugins, settings.runner());
        }
        if (settings.model().toString().isEmpty()) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    "--model is missing: name a Hugging Face folder, make one with `kvferry make-model FOLDER`, or choose --runner synthetic");
        }
        var refusals = new ArrayList<String>();
        for (var name : ORDER) {
            try {
                var runner = AssembledEngine.runner(plugins, name);
                var options = runner.options().read("--runner-options", settings.runnerOptions());
                runner.open(new ModelSource(settings.model(), options)).close();
                LOG.info(
                        "--runner auto: {} takes {}{}",
                        name,
                        settings.model(),
                        refusals.isEmpty() ? "" : "; " + String.join("; ", refusals));
                return runner;
            } catch (KvFerryException e) {
                refusals.add(name + " does not: " + e.getMessage());
            }
        }
        throw new KvFerryException(
                ErrorCode.INCOMPATIBLE,
                "no model runner takes " + settings.model() + ": " + String.join("; ", refusals));
    }
}
