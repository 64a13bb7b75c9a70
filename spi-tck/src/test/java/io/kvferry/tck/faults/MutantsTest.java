// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.faults;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.platform.engine.discovery.DiscoverySelectors.selectMethod;

import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;
import org.junit.platform.launcher.core.LauncherConfig;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;
import org.junit.platform.launcher.listeners.SummaryGeneratingListener;
import org.junit.platform.launcher.listeners.TestExecutionSummary;

import java.util.List;
import java.util.stream.Stream;

/// The contract finds broken connectors: each mutant fails the test that is there for its defect,
/// which the connector without the defect passes.
class MutantsTest {
    /// Without [io.kvferry.tck.SkipReasons]: what a broken plugin skips interests nobody.
    private static final LauncherConfig QUIET =
            LauncherConfig.builder().enableTestExecutionListenerAutoRegistration(false).build();

    private record Case(Class<?> mutant, String test) {}

    private static final List<Case> BACKENDS =
            List.of(
                    new Case(BackendMutants.DamagesBytes.class, "everyClaimedRouteMovesItsBytes"),
                    new Case(
                            BackendMutants.NotifiesTwice.class,
                            "notificationsComeAfterTheDataOnce"),
                    new Case(
                            BackendMutants.NeverCompletes.class,
                            "stridedDescriptorsMoveTheSameBytes"),
                    new Case(
                            BackendMutants.DoesWhatItDoesNotClaim.class,
                            "notificationsComeAfterTheDataOnce"),
                    new Case(BackendMutants.KeepsDroppedPeers.class, "droppedPeersAreRefused"),
                    new Case(BackendMutants.IgnoresDeadlines.class, "deadlinesEndTransfers"));

    private static final List<Case> BACKEND_FEATURES =
            List.of(
                    new Case(
                            BackendFeatureMutants.FindsStrangers.class,
                            "peersAreFoundOnceTheyAreLoaded"),
                    new Case(
                            BackendFeatureMutants.ManagesNothing.class,
                            "selfManagedMetadataNeedsNoOtherExchange"),
                    new Case(
                            BackendFeatureMutants.ExplainsByDoing.class, "explanationsMoveNothing"),
                    new Case(BackendFeatureMutants.SelectsNothing.class, "emptyListsAreRefused"),
                    new Case(
                            BackendFeatureMutants.LosesSomeNotes.class,
                            "manyNotificationsArriveOnce"),
                    new Case(
                            BackendFeatureMutants.NotifiesAhead.class,
                            "failedTransfersDoNotNotify"),
                    new Case(BackendFeatureMutants.LosesAllWithOne.class, "peersDieAlone"),
                    new Case(
                            BackendFeatureMutants.QuiescesTooSoon.class,
                            "quiescedTransfersTouchNothing"),
                    new Case(BackendFeatureMutants.SaysAllMoved.class, "failuresNameWhatMoved"),
                    new Case(
                            BackendFeatureMutants.SaysMoreThanClaimed.class,
                            "failuresNameWhatMoved"),
                    new Case(
                            BackendFeatureMutants.HidesThatItNeedsItsTarget.class,
                            "targetsNeedNoTurnUnlessClaimed"),
                    new Case(BackendFeatureMutants.SumsNothing.class, "damageOnTheWayIsNoticed"),
                    new Case(BackendFeatureMutants.HasNoBound.class, "fullQueuesRefuse"));

    private static final List<Case> CASES =
            List.of(
                    new Case(Mutants.CompletesTwice.class, "everyRankReportsALoadOnce"),
                    new Case(Mutants.SignalsNothing.class, "everyRankReportsALoadOnce"),
                    new Case(Mutants.HitsBeyondThePrompt.class, "staysWithinThePrompt"),
                    new Case(Mutants.IgnoresAlignment.class, "hitsAreWholeBlocksOrReachTheEnd"),
                    new Case(Mutants.ChangesItsMind.class, "repeatedLookupsLeaveNoState"),
                    new Case(Mutants.NeverAnswersRevocations.class, "abortsLeakNothing"),
                    new Case(Mutants.LosesFailures.class, "damagedPayloadsAreNoticed"),
                    new Case(
                            Mutants.NeverLearnsOfFailures.class,
                            "brokenPromisesAreNotRepeatedForEver"),
                    new Case(Mutants.WritesIntoAnyBlock.class, "blocksWithoutALoadAreNotTouched"),
                    new Case(Mutants.WritesIntoAnyBlock.class, "releasedBlocksAreLeftAlone"),
                    new Case(Mutants.WritesAfterARevocation.class, "abortsLeakNothing"),
                    new Case(
                            Mutants.LoadsWhatWasRevoked.class,
                            "loadsRevokedBeforeTheirPlanNeverStart"),
                    new Case(Mutants.SavesAStepLate.class, "laterContentsNeverReachTheStore"),
                    new Case(Mutants.RepeatsItsPlan.class, "plansDrain"),
                    new Case(Mutants.KeepsViews.class, "buildingAPlanChangesNothingOfTheEngine"),
                    new Case(Mutants.SharesItsSchedulerHalf.class, "enginesShareNoState"),
                    new Case(Mutants.ClaimsWhatItCannot.class, "resetMakesEverythingAMiss"),
                    new Case(Mutants.HidesWhatItDoes.class, "eventsTellWhatCanBeLoaded"),
                    new Case(Mutants.LeaksAThread.class, "closingEndsEverything"),
                    new Case(Mutants.SyncLoadsComeLate.class, "synchronousLoadsAreInPlaceInTime"),
                    new Case(
                            Mutants.SavesBehindFailedLoads.class,
                            "blocksBehindAFailedLoadAreNotStored"),
                    new Case(
                            Mutants.SavesBehindFailedLoads.class,
                            "whatRestsOnALoadThatFailedElsewhereIsNotStored"),
                    new Case(
                            Mutants.SavesBehindFailedLoads.class,
                            "aFailedBlockOfAWindowVoidsTheHit"),
                    new Case(
                            Mutants.NamesOneGroupOnly.class,
                            "aFailedLoadNamesTheBlocksOfEveryGroup"),
                    new Case(
                            Mutants.TakesDeviceMemory.class,
                            "deviceRegionsAreRefusedUnlessClaimed"),
                    new Case(
                            Mutants.SavesWhatWasNotComputed.class,
                            "failedForwardPassesStoreNothing"),
                    new Case(
                            Mutants.SavesWhatWasNotComputed.class,
                            "onlyWhatWasNotComputedIsKeptOutOfTheStore"),
                    new Case(
                            Mutants.DropsAllSavesOfSuchAStep.class,
                            "onlyWhatWasNotComputedIsKeptOutOfTheStore"),
                    new Case(Mutants.SharesAStaticField.class, "halvesShareNothing"),
                    new Case(
                            Mutants.TakesLayersAtTheEnd.class,
                            "layersAreTakenBeforeTheStepHasEnded"),
                    new Case(Mutants.QueuesWithoutBound.class, "backPressureRefusesAndRecovers"),
                    new Case(Mutants.RefusesForEver.class, "backPressureRefusesAndRecovers"),
                    new Case(Mutants.ClaimsLeases.class, "leasesAreTakenWhereClaimed"),
                    new Case(Mutants.ClaimsHandshakes.class, "handshakesAreExchangedWhereClaimed"),
                    new Case(Mutants.HidesHandshakes.class, "handshakesAreExchangedWhereClaimed"),
                    new Case(Mutants.HidesItsStore.class, "blocksAreFoundAsClaimed"),
                    new Case(Mutants.FreesTheCacheTooSoon.class, "providedMemoryOutlivesTheHalf"),
                    new Case(Mutants.ForgetsWindows.class, "slidingWindowsWorkOrAreRefused"));

    private static final List<Case> ITEMS =
            List.of(
                    new Case(EcMutants.CompletesTwice.class, "savedItemsAreLoaded"),
                    new Case(EcMutants.PromisesParts.class, "savedItemsAreLoaded"),
                    new Case(EcMutants.RepeatsItsPlan.class, "savedItemsAreLoaded"),
                    new Case(EcMutants.SavesAStepLate.class, "savedItemsAreLoaded"),
                    new Case(EcMutants.LosesFailures.class, "damagedItemsAreNoticed"),
                    new Case(EcMutants.LeavesRoomOfFailedLoads.class, "damagedItemsAreNoticed"),
                    new Case(EcMutants.LoadsOverWhatIsThere.class, "loadsDoNotOverwrite"),
                    new Case(EcMutants.LoadsOnOneRankOnly.class, "everyRankGetsTheItem"),
                    new Case(EcMutants.NeverAnswersRevocations.class, "revokedLoadsAreAnswered"),
                    new Case(EcMutants.NeverAnswersRevocations.class, "revokedHoldsAreAnswered"),
                    new Case(EcMutants.LoadsWhatWasRevoked.class, "revokedLoadsAreAnswered"),
                    new Case(EcMutants.IgnoresModels.class, "modelsAndShapesAreKeptApart"),
                    new Case(
                            EcMemoryMutants.AnswersForTheFirst.class,
                            "everyItemOfARequestIsAnsweredFor"),
                    new Case(EcMemoryMutants.WritesBehindItsRoom.class, "loadsStayInTheirRoom"),
                    new Case(EcMemoryMutants.PublishesNothing.class, "manyItemsAtOnceAreAllServed"),
                    new Case(EcMemoryMutants.LosesOneOfMany.class, "manyItemsAtOnceAreAllServed"),
                    new Case(
                            EcMemoryMutants.AnnouncesWhatItDidNotSave.class,
                            "savesThatFailAreNoItems"),
                    new Case(EcMemoryMutants.SpoilsWhatIsThere.class, "itemsEncodedTwiceAreRight"),
                    new Case(EcMemoryMutants.LoadsEachItemOnce.class, "droppedItemsAreLoadedAgain"),
                    new Case(EcMemoryMutants.IsNeverIdle.class, "idleConnectorsAskForNoStep"),
                    new Case(
                            EcMemoryMutants.FreesTheMemoryTooSoon.class,
                            "providedMemoryOutlivesTheHalves"),
                    new Case(
                            EcMemoryMutants.ProvidesUsedMemory.class,
                            "providedMemoryOutlivesTheHalves"),
                    new Case(EcMemoryMutants.SignalsNothing.class, "savedItemsAreLoaded"),
                    new Case(EcMutants.IgnoresItsRole.class, "rolesAreKept"),
                    new Case(EcMutants.LeaksAThread.class, "closingIsSafe"),
                    new Case(EcMutants.NeverEndsHolds.class, "holdsEndWhenTheirItemsAreFetched"),
                    new Case(
                            EcMutants.HoldsWithoutClaimingIt.class,
                            "holdsEndWhenTheirItemsAreFetched"),
                    new Case(EcMutants.HoldsForNobody.class, "nothingIsHeldForNobody"),
                    new Case(EcMutants.AnnouncesNothing.class, "eventsTellWhatCanBeLoaded"),
                    new Case(EcMutants.AnnouncesTwice.class, "eventsTellWhatCanBeLoaded"),
                    new Case(EcMutants.HidesItsEvents.class, "eventsTellWhatCanBeLoaded"),
                    new Case(EcMutants.ResetsNothing.class, "resetMakesEverythingAMiss"));

    @TestFactory
    Stream<DynamicTest> everyEncoderCacheMutantFailsItsTest() {
        return expectFailures(ITEMS, EcMutants.None.class);
    }

    @TestFactory
    Stream<DynamicTest> everyMutantFailsItsTest() {
        return expectFailures(CASES, Mutants.None.class);
    }

    @TestFactory
    Stream<DynamicTest> everyBackendMutantFailsItsTest() {
        return expectFailures(BACKENDS, BackendMutants.None.class);
    }

    @TestFactory
    Stream<DynamicTest> everyMutantOfABackendsFeatureFailsItsTest() {
        return expectFailures(BACKEND_FEATURES, BackendFeatureMutants.None.class);
    }

    private static Stream<DynamicTest> expectFailures(List<Case> cases, Class<?> withoutDefect) {
        return cases.stream()
                .map(mutant ->
                        DynamicTest.dynamicTest(
                                mutant.mutant.getSimpleName() + " fails " + mutant.test,
                                () -> {
                                    var healthy = run(withoutDefect, mutant.test);
                                    assertThat(healthy.getTestsSucceededCount())
                                            .as("without the defect")
                                            .isEqualTo(1);
                                    var broken = run(mutant.mutant, mutant.test);
                                    assertThat(broken.getTestsFailedCount())
                                            .as("with the defect")
                                            .isEqualTo(1);
                                    assertThat(broken.getFailures().getFirst().getException())
                                            .isInstanceOf(AssertionError.class);
                                }));
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
