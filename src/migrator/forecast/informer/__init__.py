"""The Informer as a forecaster: its network, training, file. Nothing here loads torch unasked."""

from migrator.forecast.informer.forecaster import InformerForecaster

FORECASTERS = (InformerForecaster(),)
