// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite.mutants;

import io.kvferry.tck.faults.Mutation;

import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;

import java.util.List;
import java.util.stream.Stream;

/// The contracts of composites find broken ones; what is sound passes them in
/// [MultiCompositeTckTest] and [MultiEcCompositeTckTest].
class CompositeMutantsTest {
    private static final List<String> TROUBLES =
            List.of(
                    "childrenThatThrowAreAlone",
                    "childrenThatFailAreAlone",
                    "childrenThatHangAreAlone",
                    "childrenThatThrowErrorsAreAlone",
                    "childrenThatAnswerNullAreAlone",
                    "childrenThatAnswerIllegalHitsAreAlone");

    private static final List<Mutation> MUTATIONS =
            List.of(
                    new Mutation(
                            CompositeMutants.LosesDeadlines.class,
                            "deadlinesOfChildrenAreMergedToTheEarliest"),
                    new Mutation(CompositeMutants.SleepsOn.class, "wakesOfChildrenReachTheEngine"),
                    new Mutation(
                            CompositeMutants.WastesMemory.class, "oneChildProvidesTheMemoryOfAll"),
                    new Mutation(
                            CompositeMutants.LosesLayers.class,
                            "featuresReachTheChildrenThatClaimThem"),
                    new Mutation(CompositeMutants.MixesRanksUp.class, "handshakesReachTheirChild"),
                    new Mutation(
                            CompositeMutants.CallsEveryFailureItsOwn.class,
                            "refusedLoadsGoToTheNextChild"),
                    new Mutation(
                            CompositeMutants.RenewsNothing.class, "holdsAreRenewedByTheirChild"),
                    new Mutation(
                            CompositeMutants.FitsEverything.class,
                            "misfitsOfOneChildAreTheComposites"),
                    new Mutation(
                            CompositeMutants.HidesWhatWasNotComputed.class,
                            "everyChildLearnsWhatWasNotComputed"),
                    new Mutation(
                            CompositeMutants.KeepsRevocationsToItself.class,
                            "revocationsReachTheChildThatLoads"));

    @TestFactory
    Stream<DynamicTest> everyMutantFailsItsTest() {
        return Mutation.areFound(MUTATIONS);
    }

    @TestFactory
    Stream<DynamicTest> compositesThatDieWithAChildFail() {
        return Mutation.areFound(all(CompositeMutants.DiesWithAChild.class));
    }

    @TestFactory
    Stream<DynamicTest> encoderCacheCompositesThatDieWithAChildFail() {
        return Mutation.areFound(all(EcCompositeMutants.DiesWithAChild.class));
    }

    @TestFactory
    Stream<DynamicTest> encoderCacheCompositesThatPassNothingOnFail() {
        return Mutation.areFound(
                Stream.of(
                                "deadlinesOfChildrenAreMergedToTheEarliest",
                                "wakesOfChildrenReachTheEngine",
                                "oneChildProvidesTheMemoryOfAll",
                                "handshakesReachTheirChild")
                        .map(test -> new Mutation(EcCompositeMutants.PassesNothingOn.class, test))
                        .toList());
    }

    private static List<Mutation> all(Class<?> mutant) {
        return TROUBLES.stream().map(test -> new Mutation(mutant, test)).toList();
    }
}
