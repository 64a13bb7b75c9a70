// SPDX-License-Identifier: Apache-2.0
package io.kvferry.benchmarks;

import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.Spec;

import java.util.Collection;
import java.util.concurrent.Callable;

/// One side-by-side benchmark: a picocli command with its options as fields, registered in
/// `META-INF/services`. Its description says in one line what is measured against what.
public abstract class Benchmark implements Callable<Integer> {
    @Option(names = "--quick", description = "Seconds instead of minutes.")
    protected boolean quick;

    @Option(
            names = {"-h", "--help"},
            usageHelp = true,
            description = "Print the options.")
    boolean help;

    @Spec
    @SuppressWarnings("NullAway.Init") // picocli sets it
    CommandSpec spec;

    /// Runs and prints tables to standard output.
    protected abstract void run() throws Exception;

    @Override
    public final Integer call() throws Exception {
        System.out.println("# " + String.join(" ", spec.usageMessage().description()));
        System.out.println("# " + Main.machine());
        run();
        return 0;
    }

    /// Refuses words that an option does not know.
    protected final void refuseUnknown(
            String option, Collection<String> given, Collection<String> known) {
        for (var word : given) {
            if (!known.contains(word)) {
                throw refusal(
                        "%s %s: expected %s".formatted(option, word, String.join(", ", known)));
            }
        }
    }

    /// What to throw for options that do not fit each other.
    protected final ParameterException refusal(String message) {
        return new ParameterException(spec.commandLine(), message);
    }
}
