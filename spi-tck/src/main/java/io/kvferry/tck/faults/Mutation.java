// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.faults;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.platform.engine.discovery.DiscoverySelectors.selectMethod;

import org.junit.jupiter.api.DynamicTest;
import org.junit.platform.launcher.core.LauncherConfig;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;
import org.junit.platform.launcher.listeners.SummaryGeneratingListener;
import org.junit.platform.launcher.listeners.TestExecutionSummary;

import java.util.List;
import java.util.stream.Stream;

/// A plugin with one injected defect and the contract test that must detect it; shows that the
/// tests of a contract can fail. Needs `junit-platform-launcher` on the class path.
///
/// @param mutant a subclass of the contract, with the defect
/// @param test the method of the case
public record Mutation(Class<?> mutant, String test) {
    /// Without [io.kvferry.tck.SkipReasons]: what a broken plugin skips interests nobody.
    private static final LauncherConfig QUIET =
            LauncherConfig.builder().enableTestExecutionListenerAutoRegistration(false).build();

    /// One test per mutation: its case passes without the defect, and an assertion fails with it.
    ///
    /// @param sound the same subclass without any defect
    public static Stream<DynamicTest> areFound(Class<?> sound, List<Mutation> mutations) {
        return mutations.stream()
                .map(mutation ->
                        DynamicTest.dynamicTest(
                                mutation.mutant.getSimpleName() + " fails " + mutation.test,
                                () -> mutation.mustBeFound(sound)));
    }

    /// One test per mutation: an assertion of its case fails. That the case passes without the
    /// defect is shown elsewhere: by whoever runs the contract.
    public static Stream<DynamicTest> areFound(List<Mutation> mutations) {
        return mutations.stream()
                .map(mutation ->
                        DynamicTest.dynamicTest(
                                mutation.mutant.getSimpleName() + " fails " + mutation.test,
                                mutation::mustBeFound));
    }

    private void mustBeFound(Class<?> sound) {
        var healthy = run(sound, test);
        assertThat(healthy.getTestsSucceededCount()).as("without the defect").isEqualTo(1);
        mustBeFound();
    }

    private void mustBeFound() {
        var broken = run(mutant, test);
        assertThat(broken.getTestsFailedCount()).as("with the defect").isEqualTo(1);
        assertThat(broken.getFailures().getFirst().getException())
                .isInstanceOf(AssertionError.class);
    }

    private static TestExecutionSummary run(Class<?> contract, String test) {
        var summary = new SummaryGeneratingListener();
        var request =
                LauncherDiscoveryRequestBuilder.request()
                        .selectors(selectMethod(contract, test))
                        .configurationParameter("junit.jupiter.execution.timeout.default", "30 s")
                        .build();
        LauncherFactory.create(QUIET).execute(request, summary);
        return summary.getSummary();
    }
}
