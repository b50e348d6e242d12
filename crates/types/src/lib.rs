//! The words of Sateen.
